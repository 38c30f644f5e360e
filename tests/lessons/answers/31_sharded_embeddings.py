# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(` of solutions, with `seconds=10` as `seconds=4`
# cell `def request(` of solutions

# %% my_request: solution
# Solved. Every owner has the ids that all ranks request from it, and every rank has the plan.

# %% my_request: the lesson's own
# Solved. ...
def my_request(ids, owners):
    order = owners.argsort(stable=True)
    sent = torch.bincount(owners, minlength=n)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    plan = order, sent.tolist(), received.tolist()
    return exchange(ids[order], *plan[1:]), plan

# %% my_request: counts by an all_gather
# Solved. ...
def my_request(ids, owners):
    order = owners.argsort(stable=True)
    sent = torch.bincount(owners, minlength=n)
    of_all = [torch.empty_like(sent) for _ in range(n)]
    dist.all_gather(of_all, sent)
    received = [counts[rank].item() for counts in of_all]
    return exchange(ids[order], sent.tolist(), received), [order, sent.tolist(), received]

# %% my_request: skeleton
# Not yet. With mixed owners, the asked ids on rank 0 are [101, 102, 103, 104, 105], expected [101, 103, 105, 402, 404,
# 406, 408], first those of rank 0.

# %% my_request: not sorted
# Not yet. With mixed owners, the asked ids on rank 0 are [101, 102, 103, 401, 402, 403, 404], expected [101, 103, 105,
# 402, 404, 406, 408], first those of rank 0.
# solution, with `exchange(ids[order], ` as `exchange(ids, `

# %% my_request: the split sizes swapped in the plan
# Not yet. The ids are right. With mixed owners, `sent` of the plan is [3, 0, 0, 4] on rank 0, expected the list
# [3, 2, 0, 0].
# solution, with `(order, sent, received)` as `(order, received, sent)`

# %% my_request: the order turned round
# Not yet. The ids are right. With mixed owners, `order` of the plan is [0, 3, 1, 4, 2] on rank 0, expected
# [0, 2, 4, 1, 3]: the places of its ids, sorted by owner.
# solution, with `(order, sent, received)` as `(order.argsort(), sent, received)`

# %% my_request: tensors in the plan
# Not yet. The ids are right. With mixed owners, `sent` of the plan is tensor...
# solution, with `(order, sent, received)` as `(order, torch.tensor(sent), torch.tensor(received))`

# %% my_request: without a plan
# Not yet. With mixed owners, rank 0 returned a tensor of shape [7], expected the ids that it was asked for and the plan.
# solution, with `, (order, sent, received)` as ``

# %% my_request: only a name for the plan
# Not yet. The ids are right. With mixed owners, the plan of rank 0 is None, expected (order, sent, received).
# solution, with `(order, sent, received)` as `None`

# %% my_request: without the counts
# Not yet. ...
# solution, with `dist.all_to_all_single(received, sent)` as `received = sent`

# %% my_request: the counts twice
# Not yet. Ids and plan are right. Rank 0 called 3 all_to_all, expected at most two collectives, and an all_to_all for
# the ids.
# solution, with `dist.all_to_all_single(received, sent)`
# as `dist.all_to_all_single(received, sent); dist.all_to_all_single(received, sent)`

# %% my_request: changes the ids
# Not yet. Rank 0 changed its argument `ids`, expected it unchanged.
# solution, with `return exchange(ids[order], sent, received)`
# as `asked = exchange(ids[order], sent, received); ids.zero_(); return asked`

# %% my_request: idle ranks return early
# Not yet. ...
def my_request(ids, owners):
    if not len(ids):
        return ids, (owners, n * [0], n * [0])
    order = owners.argsort(stable=True)
    sent = torch.bincount(owners, minlength=n)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    plan = order, sent.tolist(), received.tolist()
    return exchange(ids[order], *plan[1:]), plan

# %% my_answer: solution
# Solved. Every rank has a row for each of its ids, in the order of the ids.

# %% my_answer: the lesson's own
# Solved. ...
def my_answer(asked_rows, plan):
    order, sent, received = plan
    return exchange(asked_rows, received, sent)[order.argsort()]

# %% my_answer: skeleton
# Not yet. With mixed owners, rank 0 returned a tensor of shape [7, 3], expected a tensor of shape [5, 3].

# %% my_answer: in the order of the owners
# Not yet. With mixed owners, rank 0 returned rows that begin with [101.0, 103.0, 105.0, 102.0, 104.0], expected [101.0,
# 102.0, 103.0, 104.0, 105.0], in the order of its ids.
# solution, with `return torch.zeros_like(arrived).index_copy(0, order, arrived)` as `return arrived`

# %% my_answer: sorted once more
# Not yet. With mixed owners, rank 0 returned rows that begin with [101.0, 105.0, 104.0, 103.0, 102.0], expected [101.0,
# 102.0, 103.0, 104.0, 105.0], in the order of its ids.
# solution, with `torch.zeros_like(arrived).index_copy(0, order, arrived)` as `arrived[order]`

# %% my_answer: only for vectors
# Not yet. With mixed owners, rank 0 returned torch.float64, expected torch.bool, the dtype of the argument.
# solution, with `exchange(asked_rows, ` as `exchange(asked_rows.double(), `

# %% my_answer: with a barrier
# Not yet. The rows are right. Rank 0 called 1 all_to_all, 1 barrier, expected 1 all_to_all.
# solution, with `order, sent, received = plan` as `order, sent, received = plan; dist.barrier()`

# %% my_answer: without return
# Not yet. With mixed owners, rank 0 returned None, expected a tensor of shape [5, 3].
# solution, with `return torch` as `torch`

# %% my_answer: the way of the ids
# Not yet. ...
# solution, with `exchange(asked_rows, received, sent)` as `exchange(asked_rows, sent, received)`

# %% my_to_owners: solution
# Solved. Every owner has a row for each id that it was asked for.

# %% my_to_owners: skeleton
# Not yet. With mixed owners, rank 0 returned a tensor of shape [5, 3], expected a tensor of shape [7, 3].

# %% my_to_owners: not sorted
# Not yet. With mixed owners, rank 0 returned rows that begin with [101.0, 102.0, 103.0, 401.0, 402.0, 403.0, 404.0],
# expected [101.0, 103.0, 105.0, 402.0, 404.0, 406.0, 408.0], in the order of the ids that it was asked for.
# solution, with `own_rows[order]` as `own_rows`

# %% my_to_owners: the way of the vectors
# Not yet. ...
# solution, with `sent, received)` as `received, sent)`

# %% my_to_owners: changes the rows
# Not yet. Rank 0 changed the rows that it got, expected them unchanged.
# solution, with `return exchange(own_rows[order], sent, received)`
# as `result = exchange(own_rows[order], sent, received); own_rows.zero_(); return result`

# %% my_to_owners: without return
# Not yet. With mixed owners, rank 0 returned None, expected a tensor of shape [7, 3].
# solution, with `return exchange` as `exchange`

# %% pooled: solution
# Solved. Every rank has the sums of its passages, and no vector of a single id has travelled.

# %% pooled: bag numbers of all passages
# Solved. ...
def pooled(shard, ids, bag_of_id, bags):
    asked, plan = request(ids, ids % n)
    passage = to_owners(rank * bags + bag_of_id, plan)
    one_hot = torch.nn.functional.one_hot(passage, n * bags).double()
    sums = torch.empty(bags, shard.shape[1])
    dist.reduce_scatter_tensor(sums, one_hot.T @ shard[asked // n])
    return sums

# %% pooled: skeleton
# Not yet. With short passages, rank 0 returned [...], expected [...].

# %% pooled: a vector for each id
# Not yet. The sums are right. With long passages, rank 0 passed ... bytes, expected at most ...: the counts, two numbers
# for each id, and a sum for each passage of each rank.
def pooled(shard, ids, bag_of_id, bags):
    asked, plan = request(ids, ids % n)
    vectors = answer(shard[asked // n], plan)
    return torch.zeros(bags, shard.shape[1]).index_add(0, bag_of_id, vectors)

# %% pooled: passages of all ranks mixed up
# Not yet. With short passages, rank 0 returned [...], expected [...].
# solution, with `asking * bags + bag_of_asked` as `bag_of_asked`

# %% pooled: the passages of a rank counted by columns
# Not yet. With no ids on rank 0, rank 0 returned [...], expected [...].
# solution, with `asking * bags` as `asking * shard.shape[1]`

# %% pooled: an all_reduce
# Not yet. The sums are right. Rank 0 called 1 all_reduce, 3 all_to_all, expected 1 reduce_scatter.
# solution, with `dist.reduce_scatter_single(sums, sums_of_all)`
# as `dist.all_reduce(sums_of_all); sums = sums_of_all.view(n, bags, -1)[rank].clone()`

# %% pooled: without return
# Not yet. With short passages, rank 0 returned None, expected a tensor of shape [3, 3].
# solution, with `return sums` as `sums`

# %% rowwise_adagrad: solution
# Solved. Every row with gradients took one step, and all other rows are unchanged.

# %% rowwise_adagrad: by a sparse tensor
# Solved. ...
def rowwise_adagrad(shard, sums, places, gradients, rate):
    summed = torch.sparse_coo_tensor(places[None], gradients, shard.shape, check_invariants=True).coalesce()
    (distinct,), g = summed.indices(), summed.values()
    sums.index_add_(0, distinct, g.square().mean(dim=1))
    shard.index_add_(0, distinct, g / (sums[distinct].sqrt() + 1e-10).unsqueeze(1), alpha=-rate)

# %% rowwise_adagrad: skeleton
# Not yet. With a place three times, `sums` is [...] on rank 0, expected [...].

# %% rowwise_adagrad: the last gradient of a row
# Not yet. With a place three times, `sums` is [...] on rank 0, expected [...].
def rowwise_adagrad(shard, sums, places, gradients, rate):
    sums[places] += gradients.square().mean(dim=1)
    shard[places] -= rate * gradients / (sums[places].sqrt() + 1e-10).unsqueeze(1)

# %% rowwise_adagrad: the sum of the squares
# Not yet. With different places, `sums` is [...] on rank 0, expected [...].
# solution, with `.mean(dim=1)` as `.sum(dim=1)`

# %% rowwise_adagrad: without the root
# Not yet. `sums` is right. With different places, the first column of `shard` is [...] on rank 0, expected [...].
# solution, with `sums[distinct].sqrt()` as `sums[distinct]`

# %% rowwise_adagrad: the rate of the lesson
# Not yet. `sums` is right. With different places, the first column of `shard` is [...] on rank 0, expected [...].
# solution, with `rate * g` as `0.5 * g`

# %% rowwise_adagrad: adds up in the gradients
# Not yet. Rank 0 changed `gradients`, expected them unchanged.
def rowwise_adagrad(shard, sums, places, gradients, rate):
    first = {}
    for number, place in enumerate(places.tolist()):
        if place in first:
            gradients[first[place]] += gradients[number]
        first.setdefault(place, number)
    for place, number in first.items():
        sums[place] += gradients[number].square().mean()
        shard[place] -= rate * gradients[number] / (sums[place].sqrt() + 1e-10)

# %% rowwise_adagrad: all rows
# Not yet. With different places, rank 0 changed a row without gradients, expected it unchanged.
# solution, with `distinct, number` as `shard += 1e-12; distinct, number`

# %% rowwise_adagrad: over all ranks
# Not yet. Rank 0 called 1 all_reduce, expected no collective.
# solution, with `distinct, number` as `dist.all_reduce(torch.zeros(1)); distinct, number`

# %% World(2), World(5): my_request, my_answer, my_to_owners, pooled, rowwise_adagrad
