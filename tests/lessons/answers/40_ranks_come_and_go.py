# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `import json` of solutions, with `seconds=10` as `seconds=4`

# %% my_quorum: solution
# Solved. All ranks returned the list of the processes that signed in time, and no rank waited for a process that ...

# %% my_quorum: a numbered key for each signature
# Solved. All ranks returned the list of the processes that signed in time, and no rank waited for a process that ...
def my_quorum(store, me, grace):
    number = store.add("count", 1)
    store.set(f"signature {number}", me)
    time.sleep(grace)
    signed = [store.get(f"signature {k}").decode() for k in range(1, store.add("count", 0) + 1)]
    return json.loads(store.compare_set("members", "", json.dumps(sorted(signed))))

# %% my_quorum: the first process decides
# Solved. All ranks returned the list of the processes that signed in time, and no rank waited for a process that ...
def my_quorum(store, me, grace):
    store.append("signatures", me + ",")
    if store.add("who is first", 1) == 1:
        time.sleep(grace)
        store.set("members", ",".join(sorted(store.get("signatures").decode().split(",")[:-1])))
    return store.get("members").decode().split(",")

# %% my_quorum: alone
# Not yet. Rank 1 signed 0....
# skeleton, with `store.append("signatures", f"{me} ")` as `store.set(me, "")`

# %% my_quorum: a grace of its own
# Not yet. Rank 1 signed 0... s after the first rank, within the grace of 1.0 s, but rank 0 returned ...
# solution, with `time.sleep(grace)` as `time.sleep(GRACE)`

# %% my_quorum: looks before it sets
# Not yet. Rank ... looked for the key `members` and then set it in a second call. ...
def my_quorum(store, me, grace):
    store.append("signatures", f"{me} ")
    time.sleep(grace)
    if not store.check(["members"]):
        store.set("members", json.dumps(sorted(store.get("signatures").decode().split())))
    return json.loads(store.get("members"))

# %% my_quorum: the last proposal counts
# Not yet. Rank 3 signed after the others returned: rank 0 returned ['0.1', '1.2', '2.1'], rank 3 returned ['0.1',
# '1.2', '2.1', '3.2'], expected the same.
def my_quorum(store, me, grace):
    store.append("signatures", f"{me} ")
    time.sleep(grace)
    store.set("members", json.dumps(sorted(store.get("signatures").decode().split())))
    return json.loads(store.get("members"))

# %% my_quorum: signs after the grace
# Not yet. Rank ...
def my_quorum(store, me, grace):
    time.sleep(grace)
    store.append("signatures", f"{me} ")
    signed = sorted(store.get("signatures").decode().split())
    return json.loads(store.compare_set("members", "", json.dumps(signed)))

# %% my_quorum: adds a late process to the list
# Not yet. Rank 3 signed after the others returned: rank 0 returned ['0.1', '1.2', '2.1'], rank 3 returned ['0.1',
# '1.2', '2.1', '3.2'], expected the same.
# solution, with `return json.loads(store.compare_set("members", "", json.dumps(signed)))` as `members = json.loads(store.compare_set("members", "", json.dumps(signed))); return sorted({*members, me})`

# %% my_quorum: reads the list if there is one
# Solved. All ranks returned the list of the processes that signed in time, and no rank waited for a process that ...
def my_quorum(store, me, grace):
    if not store.check(["members"]):
        store.append("signatures", me + "\n")
        time.sleep(grace)
        names = bytes(store.get("signatures")).decode().strip().split("\n")
        store.compare_set("members", "", json.dumps([name for name in sorted(names)]))
    return json.loads(store.get("members").decode())

# %% my_quorum: its own view
# Not yet. Rank 3 signed after the others returned: rank 0 returned ['0.1', '1.2', '2.1'], rank 3 returned
# ['0.1', '1.2', '2.1', '3.2'], expected the same.
def my_quorum(store, me, grace):
    store.append("signatures", f"{me} ")
    time.sleep(grace)
    signed = sorted(store.get("signatures").decode().split())
    return signed

# %% my_quorum: no grace
# Not yet. Rank ...
# solution, with `time.sleep(grace)` as `pass`

# %% my_quorum: everybody
# Not yet. Rank 3 never signed, but rank 0 returned ['0.1', '1.2', '2.1', '3.2'], expected a list without '3.2'.
def my_quorum(store, me, grace):
    store.set(me, "")
    return ["0.1", "1.2", "2.1", "3.2"]

# %% my_quorum: names without numbers
# Not yet. Rank 0 signed ... within the grace of 0.6 s, but rank 0 returned ['0', '1', '2'], expected a list with ...
def my_quorum(store, me, grace):
    store.append("signatures", f"{me.split('.')[0]} ")
    time.sleep(grace)
    signed = sorted(store.get("signatures").decode().split())
    return json.loads(store.compare_set("members", "", json.dumps(signed)))

# %% my_quorum: only first incarnations
# Not yet. Rank 1 signed 0....
def my_quorum(store, me, grace):
    store.set(me, "")
    time.sleep(grace)
    signed = [f"{name}.1" for name in range(4) if store.check([f"{name}.1"])]
    return json.loads(store.compare_set("members", "", json.dumps(signed)))

# %% my_quorum: waits for all
# Not yet. Rank 0 raised TimeoutError: it waited for a key that no rank sets
def my_quorum(store, me, grace):
    store.set(me, "")
    everybody = ["0.1", "1.2", "2.1", "3.2"]
    store.wait(everybody, timedelta(seconds=1))
    return everybody

# %% my_quorum: another key
# Not yet. After `my_quorum` on rank 0 the store has no key `members`, expected the list there: later processes ...
# solution, with `"members"` as `"list"`

# %% my_quorum: unsorted
# Not yet. Rank 0 returned [...], expected a sorted list, with each incarnation once.
# solution, with `sorted(store.get("signatures").decode().split())` as `sorted(store.get("signatures").decode().split())[::-1]`

# %% my_quorum: an empty name behind the last blank
# Not yet. Rank 0 returned ['', '0.1', '1.2', '2.1'], but no process has the incarnation ''.
# solution, with `.split()` as `.split(" ")`

# %% my_quorum: bytes
# Not yet. Rank 0 returned b'["0.1", "1.2", "2.1"]', expected a list of incarnations, as in ['0.1', '2.1'].
# answer "its own view", with `return signed` as `return store.compare_set("members", "", json.dumps(signed))`

# %% my_quorum: a list of bytes
# Not yet. Rank 0 returned [b'0.1', b'1.2', b'2.1'], expected a list of incarnations, as in ['0.1', '2.1'].
def my_quorum(store, me, grace):
    store.append("signatures", f"{me} ")
    time.sleep(grace)
    return sorted(store.get("signatures").split())

# %% my_quorum: without return
# Not yet. Rank 0 returned None, expected a list of incarnations, as in ['0.1', '2.1'].
def my_quorum(store, me, grace):
    store.append("signatures", f"{me} ")

# %% my_quorum: misspelt
# Not yet. Rank 0 raised NameError: name 'quorums' is not defined
def my_quorum(store, me, grace):
    return quorums(store)

# %% my_quorum: skeleton
# Not yet. Rank 1 signed 0....

# %% my_meeting: solution
# Solved. The processes in the list are one group, each at its place in the list, and a late process is in no group.

# %% my_meeting: skeleton
# Not yet. Rank 0 did not call `quorum(store, me, GRACE)`.

# %% my_meeting: the store without a prefix
# Solved. The processes in the list are one group, each at its place in the list, and a late process is in no group.
def my_meeting(store):
    leave()
    members = quorum(store, me, GRACE)
    for place, member in enumerate(members):
        if member == me:
            dist.init_process_group("gloo", store=store, rank=place, world_size=len(members), timeout=TIMEOUT)
    return members

# %% my_meeting: only the list
# Not yet. Rank 0 is in a group of 1 after the meeting, expected a group of the 3 processes in the list.
def my_meeting(store):
    return quorum(store, me, GRACE)

# %% my_meeting: does not leave
# Not yet. Rank 0 raised ValueError: trying to initialize the default process group twice!
# solution, with `leave()` as `pass`

# %% my_meeting: the late process keeps its group
# Not yet. Rank 3 is in a group of 1 after the meeting, but the list ['1.2', '2.1', '0.1'] lacks its incarnation '3.2'...
def my_meeting(store):
    members = quorum(store, me, GRACE)
    if me in members:
        leave()
        place, size = members.index(me), len(members)
        dist.init_process_group("gloo", store=store, rank=place, world_size=size, timeout=TIMEOUT)
    return members

# %% my_meeting: signs before it leaves
# Not yet. Rank 3 was still in its group when it called `quorum`, expected it to leave first: the other ranks may ...
def my_meeting(store):
    members = quorum(store, me, GRACE)
    leave()
    if me in members:
        place, size = members.index(me), len(members)
        dist.init_process_group("gloo", store=store, rank=place, world_size=size, timeout=TIMEOUT)
    return members

# %% my_meeting: index without a look
# Not yet. Rank 3 raised ValueError: ...
# solution, with `if me in members:` as `if True:`

# %% my_meeting: the size of the world
# Not yet. Rank 0 raised ValueError: `world_size` is 4, expected 3, the length of the list
# solution, with `len(members)` as `n`

# %% my_meeting: sorted members
# Not yet. The process '0.1' has rank 0 after the meeting, expected 2, its index in ['1.2', '2.1', '0.1'].
# solution, with `members.index(me)` as `sorted(members).index(me)`

# %% my_meeting: by positions, with another store
# Solved. The processes in the list are one group, each at its place in the list, and a late process is in no group.
def my_meeting(store):
    leave()
    members = quorum(store, me, GRACE)
    ranks = {member: place for place, member in enumerate(members)}
    if me not in ranks:
        return members
    dist.init_process_group(
        backend="gloo",
        timeout=TIMEOUT,
        rank=ranks[me],
        world_size=len(ranks),
        store=dist.PrefixStore("ranks", dist.PrefixStore("of the group", store)),
    )
    return members

# %% my_meeting: leaves and makes no group
# Not yet. Rank 0 is in no group after the meeting, expected a group of the 3 processes in the list.
def my_meeting(store):
    leave()
    return quorum(store, me, GRACE)

# %% my_meeting: its name as the rank
# Not yet. The process '0.1' has rank 0 after the meeting, expected 2, its index in ['1.2', '2.1', '0.1'].
# solution, with `members.index(me)` as `int(me[0])`

# %% my_meeting: without the timeout
# Not yet. Rank 0 made a group without the timeout, expected `timeout=TIMEOUT`.
# solution, with `, timeout=TIMEOUT` as ``

# %% my_meeting: one prefix for all meetings
# Not yet. Rank 0 made its group with keys that the next meeting would find ...
# solution, with `dist.PrefixStore("group", store)` as `dist.PrefixStore("group", store.underlying_store)`

# %% my_meeting: another quorum
# Not yet. Rank 0 raised ValueError: it has no list yet, expected a call of `quorum(store, me, GRACE)` first
def my_meeting(store):
    leave()
    store.append("signatures", f"{me} ")
    time.sleep(GRACE)
    members = sorted(store.get("signatures").decode().split())
    group = dist.PrefixStore("group", store)
    dist.init_process_group("gloo", store=group, rank=members.index(me), world_size=len(members), timeout=TIMEOUT)
    return members

# %% my_meeting: returns nothing
# Not yet. Rank 0 returned None, expected the list of the quorum, ['1.2', '2.1', '0.1'].
# solution, with `return members` as `return None`

# %% my_meet: solution
# Solved. Every rank went to the first meeting that was not over, and went on until it was a member.

# %% my_meet: skeleton
# Not yet. When the meetings 0 to 2 are over, rank 0 took part in the meetings [0], expected [3].

# %% my_meet: recursion
# Solved. Every rank went to the first meeting that was not over, and went on until it was a member.
def my_meet(number=0):
    if place(number).check(["members"]):
        return my_meet(number + 1)
    store = place(number)
    store.set("a rank has arrived", "yes")
    members = meeting(store)
    return (number, members) if me in members else my_meet(number + 1)

# %% my_meet: visits every meeting
# Not yet. When the meetings 0 to 2 are over, rank 0 took part in the meetings [0], expected [3].
def my_meet():
    for number in range(100):
        place(number).set("a rank has arrived", "yes")
        members = meeting(place(number))
        if me in members:
            return number, members

# %% my_meet: its incarnation alone
# Not yet. When no meeting is over, rank 0 returned (0, '0.1'), expected the number and the list of its last meeting,
# 0 and ['0.1'].
# solution, with `return number, members` as `return number, me`

# %% my_meet: one number too far
# Not yet. When no meeting is over, rank 0 returned (1, ['0.1']), expected the number and the list of its last
# meeting, 0 and ['0.1'].
def my_meet():
    number, members = 0, []
    while me not in members:
        while place(number).check(["members"]):
            number += 1
        place(number).set("a rank has arrived", "yes")
        members = meeting(place(number))
        number += 1
    return number, members

# %% my_meet: any key
# Not yet. When the meetings 0 to 2 are over, rank 0 took part in the meetings [0], expected [3].
# solution, with `place(number).check(["members"])` as `place(number).check(["a rank has arrived"])`

# %% my_meet: announces after the meeting
# Not yet. When no meeting is over, rank 0 set the key `a rank has arrived` before the meetings [], expected [0].
def my_meet():
    number, members = 0, []
    while me not in members:
        while place(number).check(["members"]):
            number += 1
        members = meeting(place(number))
        place(number).set("a rank has arrived", "yes")
    return number, members

# %% my_meet: with itertools
# Solved. Every rank went to the first meeting that was not over, and went on until it was a member.
def my_meet():
    import itertools
    for number, store in ((k, place(k)) for k in itertools.count()):
        if store.check(["members"]):
            continue
        store.set("a rank has arrived", str(me))
        if me in (members := list(meeting(store))):
            return [number, members]

# %% my_meet: gives up when it is late
# Not yet. When the list of meeting 0 is decided without this process, rank 0 took part in the meetings [0],
# expected [0, 1].
def my_meet():
    number = 0
    while place(number).check(["members"]):
        number += 1
    place(number).set("a rank has arrived", "yes")
    return number, meeting(place(number))

# %% my_meet: arrives without a sign
# Not yet. When no meeting is over, rank 0 set the key `a rank has arrived` before the meetings [], expected [0].
# solution, with `place(number).set("a rank has arrived", "yes")` as `pass`

# %% my_meet: the same meeting again
# Not yet. Rank 0 raised RuntimeError: it visited the meetings [0, 0], and did not end
def my_meet():
    number, members = 0, []
    while place(number).check(["members"]):
        number += 1
    while me not in members:
        place(number).set("a rank has arrived", "yes")
        members = meeting(place(number))
    return number, members

# %% my_meet: only the list
# Not yet. When no meeting is over, rank 0 returned ['0.1'], expected the number and the list of its last meeting, ...
# solution, with `return number, members` as `return members`

# %% catch_up: skeleton
# Not yet. When the last rank is a step ahead, rank 0 returned the state of step 7, expected the state of step 8.

# %% catch_up: solution
# Solved. Every rank returned the state of the most steps, and no rank sent a state that no other needed.

# %% catch_up
# Solved. Every rank returned the state of the most steps, and no rank sent a state that no other needed.
def catch_up(step, state):
    steps = [None] * n
    dist.all_gather_object(steps, step)
    furthest = steps.index(max(steps))
    behind = [other for other in range(n) if steps[other] < max(steps)]
    if rank == furthest:
        for other in behind:
            dist.send(state, other)
    elif rank in behind:
        state = torch.empty_like(state)
        dist.recv(state, furthest)
    return state

# %% catch_up
# Solved. Every rank returned the state of the most steps, and no rank sent a state that no other needed.
def catch_up(step, state):
    ends = torch.tensor([step * n + rank, -step])
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    most, furthest = divmod(ends[0].item(), n)
    if most != -ends[1].item():
        dist.broadcast(state, furthest)
    return state

# %% catch_up: the largest elements
# Not yet. When rank 1 is new, rank 0 returned a mixture of states, expected the state of step 7.
def catch_up(step, state):
    steps = [None] * n
    dist.all_gather_object(steps, step)
    if min(steps) < max(steps):
        dist.all_reduce(state, op=dist.ReduceOp.MAX)
    return state

# %% catch_up: compares with rank 0
# Not yet. When rank 1 is new, rank 1 returned the state of step 0, expected the state of step 7.
def catch_up(step, state):
    steps = [None] * n
    dist.all_gather_object(steps, step)
    if steps[0] < max(steps):
        dist.broadcast(state, steps.index(max(steps)))
    return state

# %% catch_up: all states
# Not yet. When all ranks are at the same step, rank 0 sent 10... bytes, expected no state.
def catch_up(step, state):
    steps, states = [None] * n, [torch.empty_like(state) for _ in range(n)]
    dist.all_gather_object(steps, step)
    dist.all_gather(states, state)
    return states[steps.index(max(steps))]

# %% catch_up: without changing its argument
# Solved. Every rank returned the state of the most steps, and no rank sent a state that no other needed.
def catch_up(step, state):
    mine = torch.tensor([step, rank], dtype=torch.float64)
    both = [torch.empty(2, dtype=torch.float64) for _ in range(n)]
    dist.all_gather(both, mine)
    steps = torch.stack(both)[:, 0]
    if (steps == steps[0]).all():
        return state
    newest = state.clone()
    dist.broadcast(newest, src=int(steps.argmax()))
    return newest

# %% catch_up: only ranks that are behind call the broadcast
# Not yet. Deadlock: until the timeout, ... No restart is needed: run the cell with your changed answer, then this
# check.
def catch_up(step, state):
    steps = [None] * n
    dist.all_gather_object(steps, step)
    if step < max(steps):
        dist.broadcast(state, steps.index(max(steps)))
    return state

# %% catch_up: always
# Not yet. When all ranks are at the same step, rank 0 sent 10... bytes, expected no state.
def catch_up(step, state):
    steps = [None] * n
    dist.all_gather_object(steps, step)
    dist.broadcast(state, steps.index(max(steps)))
    return state

# %% catch_up
# Not yet. When the last rank is a step ahead, rank 0 returned the state of step 7, expected ...
# answer "always", with `dist.broadcast(state, steps.index(max(steps)))` as `dist.broadcast(state, 0)`

# %% catch_up
# Not yet. When rank 1 is new, rank 1 returned the state of step 0, expected the state of step 7.
# skeleton, with `dist.broadcast(state, 0)` as `steps = [None] * n; dist.all_gather_object(steps, step); pass`

# %% catch_up
# Not yet. When rank 1 is new, rank 0 returned the state of step 5.25, expected ...
# answer "always", with `dist.broadcast(state, steps.index(max(steps)))` as `dist.all_reduce(state); state /= n`

# %% catch_up
# Not yet. When rank 1 is new, rank 0 returned the state of step 0, ...
# answer "always",
# with `dist.broadcast(state, steps.index(max(steps)))` as `dist.broadcast(state, steps.index(min(steps)))`

# %% catch_up
# Not yet. When rank 1 is new, rank 0 returned None, expected the state of step 7.
# skeleton, with `dist.broadcast(state, 0)` as `steps = [None] * n; dist.all_gather_object(steps, step); state = None`

# %% majority: solution
# Solved. Only a list with more than half of the last group continues, so two disjoint lists cannot both continue.

# %% majority: skeleton
# Not yet. When only one process has signed, ['0.1'], and the last group was ['0.1', '1.1', '2.1', '3.1'], rank 0
# returned ['0.1'], expected None.

# %% majority
# Solved. Only a list with more than half of the last group continues, so two disjoint lists cannot both continue.
def majority(store, me, grace, last):
    members = quorum(store, me, grace)
    return members if 2 * len(set(members) & set(last)) > len(last) else None

# %% majority
# Solved. Only a list with more than half of the last group continues, so two disjoint lists cannot both continue.
def majority(store, me, grace, last):
    members = quorum(store, me, grace)
    gone = [other for other in last if other not in members]
    return None if len(gone) >= len(last) / 2 else members

# %% majority: names count
# Not yet. When half of the names belong to new processes, ['0.2', '1.2', '2.1', '3.1'], and the last group was
# ['0.1', '1.1', '2.1', '3.1'], rank 0 returned ['0.2', '1.2', '2.1', '3.1'], expected None.
def majority(store, me, grace, last):
    members = quorum(store, me, grace)
    names = {member.split(".")[0] for member in members} & {member.split(".")[0] for member in last}
    return members if len(names) > len(last) / 2 else None

# %% majority: new members count
# Not yet. When half of the names belong to new processes, ['0.2', '1.2', '2.1', '3.1'], and the last group was ...
def majority(store, me, grace, last):
    members = quorum(store, me, grace)
    return members if 2 * len(members) > len(last) else None

# %% majority: half is enough
# Not yet. When half have signed, ['0.1', '1.1'], and the last group was ['0.1', '1.1', '2.1', '3.1'], rank 0 ...
# solution, with `>` as `>=`

# %% majority: all of them
# Not yet. When all but the last process have signed, ...
def majority(store, me, grace, last):
    members = quorum(store, me, grace)
    return members if members == last else None

# %% majority: True or False
# Not yet. When all have signed, ['0.1', ...
def majority(store, me, grace, last):
    members = quorum(store, me, grace)
    return 2 * len(set(members) & set(last)) > len(last)

# %% majority: without a quorum
# Not yet. Rank 0 did not call `quorum(store, me, grace)`.
# skeleton, with `return quorum(store, me, grace)` as `return list(last)`

# %% majority: half of the world
# Not yet. When more than half have signed, ['0.1', '1.1'], and the last group was ['0.1', '1.1', '2.1'], rank 0 returned
# None, expected ['0.1', '1.1'].
# solution, with `len(last) / 2` as `n / 2`

# %% majority: few new members
# Not yet. When only one process has signed, ['0.1'], and the last group was ['0.1', '1.1', '2.1', '3.1'], rank 0
# returned ['0.1'], expected None.
def majority(store, me, grace, last):
    members = quorum(store, me, grace)
    return members if len(set(members) - set(last)) < len(last) / 2 else None

# %% majority: only the old members
# Not yet. When all and a new process have signed, ['0.1', '1.1', '2.1', '3.1', '4.1'], and the last group was ['0.1',
# '1.1', '2.1', '3.1'], rank 0 returned ['0.1', '1.1', '2.1', '3.1'], expected ['0.1', '1.1', '2.1', '3.1', '4.1'].
# solution, with `return members if` as `return sorted(remaining) if`

# %% majority: an empty list
# Not yet. When only one process has signed, ['0.1'], and the last group was ['0.1', '1.1', '2.1', '3.1'], rank 0
# returned [], expected None.
# solution, with `else None` as `else []`

# %% majority: counted one by one
# Solved. Only a list with more than half of the last group continues, so two disjoint lists cannot both continue.
def majority(store, me, grace, last):
    members = quorum(store, me, grace)
    votes = [member in last for member in members]
    if votes.count(True) >= len(last) // 2 + 1:
        return members
