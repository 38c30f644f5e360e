"""Training with ranks that come and go: the cells of 40_ranks_come_and_go that every new rank runs."""

from small_training import *


name = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
base = dist.TCPStore(*address, is_master=False, timeout=timedelta(seconds=10))
TIMEOUT = timedelta(seconds=4)

def leave():
    if dist.is_initialized():
        dist.destroy_process_group()

def all_in_one_group(prefix):
    leave()
    store = dist.PrefixStore(prefix, base)
    size = world_size
    dist.init_process_group("gloo", store=store, rank=name, world_size=size, timeout=TIMEOUT)

def wait_in_all_reduce(leaves):
    try:
        dist.all_reduce(torch.ones(1000))
    except RuntimeError:
        failed_at = time.monotonic()
    if leaves:
        leave()
    return failed_at


if "me" not in globals():  # so that this cell can be run again
    me = f"{name}.{base.add(f'processes with the name {name}', 1)}"


def quorum_of_the_lesson(store, me, grace):
    store.append("signatures", f"{me} ")
    time.sleep(grace)
    signed = sorted(store.get("signatures").decode().split())
    return json.loads(store.compare_set("members", "", json.dumps(signed)))


quorum = quorum_of_the_lesson
GRACE = 0.5  # seconds


def meeting_of_the_lesson(store):
    leave()
    members = quorum(store, me, GRACE)
    if me in members:
        place, size = members.index(me), len(members)
        store = dist.PrefixStore("group", store)
        dist.init_process_group("gloo", store=store, rank=place, world_size=size, timeout=TIMEOUT)
    return members


meeting = meeting_of_the_lesson

def place(number):
    """Return the store of a meeting."""
    return dist.PrefixStore(f"{run}/meeting {number}", base)

def meet_and_add():
    members = meeting(place(0))
    total = torch.ones(1)
    dist.all_reduce(total)
    return members, dist.get_rank(), int(total)

def arrive_late():
    return meeting(place(0)), dist.is_initialized()


def meet_of_the_lesson():
    number, members = 0, []
    while me not in members:
        while place(number).check(["members"]):
            number += 1
        place(number).set("a rank has arrived", "yes")
        members = meeting(place(number))
    return number, members


meet_next = meet_of_the_lesson

def meet():
    global number, members, rank, n
    number, members = meet_next()
    rank, n = dist.get_rank(), dist.get_world_size()
    take_state()

def take_state():
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(n)]
    dist.all_gather(steps, torch.tensor([training.step]))
    furthest = steps.index(max(steps))
    state = training.state()
    dist.broadcast(state, furthest)
    training.load(state)

def begin(name_of_run):
    global run, training, history
    leave()
    run, training, history = name_of_run, Training(), []


def train(until, dies_at=None, waits_at=None):
    while training.step < until:
        try:
            if not dist.is_initialized() or place(number + 1).check(["a rank has arrived"]):
                meet()
            elif training.step == waits_at and n < world_size:
                time.sleep(0.01)
            else:
                one_step(dies_at)
        except RuntimeError:
            leave()
    return history

def one_step(dies_at):
    if training.step == dies_at:
        Path(tempfile.gettempdir(), "doomed").touch()
        time.sleep(10)
    gradient = training.gradient(rank, n)
    dist.all_reduce(gradient)
    training.update(gradient)
    time.sleep(0.01)
    history.append([training.step, time.monotonic(), members])


def stand_by(until):
    while not place(1).check(["a rank has arrived"]):
        time.sleep(0.01)
    return train(until)
