"""The lesson ring_all_reduce, broken on purpose."""

MUTANTS = {
    "the library call is the naive exchange": ("%px dist.all_reduce(tensor)", "%px naive_exchange(tensor)"),
}
