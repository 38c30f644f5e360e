# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(` of solutions, with `seconds=10` as `seconds=4`

# %% my_quorum: solution
# Solved. All ranks returned the list of the ranks that signed in time, and no rank waited for a rank that never signed.

# %% my_quorum
# Solved. All ranks returned the list of the ranks that signed in time, and no rank waited for a rank that never signed.
def my_quorum(store, name, grace):
    number = store.add("count", 1)
    store.set(f"signature {number}", str(name))
    time.sleep(grace)
    signed = [int(store.get(f"signature {k}")) for k in range(1, store.add("count", 0) + 1)]
    return json.loads(store.compare_set("list", "", json.dumps(sorted(signed))))

# %% my_quorum
# Solved. All ranks returned the list of the ranks that signed in time, and no rank waited for a rank that never signed.
def my_quorum(store, name, grace):
    store.set(str(name), "here")
    if store.add("who is first", 1) == 1:
        time.sleep(grace)
        store.set("list", ",".join(str(other) for other in everybody if store.check([str(other)])))
    return [int(other) for other in store.get("list").decode().split(",")]

# %% my_quorum: alone
# Not yet. Rank 1 signed 0....
# skeleton, with `store.set(f"signature of {name}", "here")` as `store.set(str(name), "")`

# %% my_quorum: its own view
# Not yet. Rank 3 signed after the others returned: rank 0 returned [0, 1, 2], rank 3 returned [0, 1, 2, 3], expected
# the same.
def my_quorum(store, name, grace):
    store.set(str(name), "")
    time.sleep(grace)
    signed = [other for other in everybody if store.check([str(other)])]
    return signed

# %% my_quorum: no grace
# Not yet. Rank ...
def my_quorum(store, name, grace):
    store.set(str(name), "")
    signed = [other for other in everybody if store.check([str(other)])]
    return json.loads(store.compare_set("l", "", json.dumps(signed)))

# %% my_quorum: everybody
# Not yet. Rank 3 never signed, but rank 0 returned [0, 1, 2, 3], expected a list without 3.
def my_quorum(store, name, grace):
    store.set(str(name), "")
    return list(everybody)

# %% my_quorum: waits for all
# Not yet. Rank 0 raised TimeoutError: it waited for a key that no rank sets
def my_quorum(store, name, grace):
    store.set(str(name), "")
    store.wait([str(other) for other in everybody], timedelta(seconds=1))
    return list(everybody)

# %% my_quorum: bytes
# Not yet. Rank 0 returned b'[0, 1, 2]', expected a list of names, as in [0, 2].
# answer "its own view", with `return signed` as `return store.compare_set("l", "", json.dumps(signed))`

# %% my_quorum: misspelt
# Not yet. Rank 0 raised NameError: name 'quorums' is not defined
def my_quorum(store, name, grace):
    return quorums(store)

# %% my_quorum: skeleton
# Not yet. Rank 1 signed 0....

# %% my_loss: solution
# Solved. For every split of the batch, ...

# %% my_loss
# Solved. For every split of the batch, ...
# solution, with `return losses.sum() * n / batch` as `return (losses * (n / batch)).sum()`

# %% my_loss
# Solved. For every split of the batch, ...
# skeleton, with `losses.mean()` as `losses.mean() * len(losses) / batch * n if len(losses) else losses.sum()`

# %% my_loss
# Solved. For every split of the batch, ...
def my_loss(losses, batch, n):
    return torch.nn.functional.l1_loss(losses, torch.zeros_like(losses), reduction="sum") / (batch / n)

# %% my_loss: skeleton
# Not yet. With 17 examples, split as [5, 4, 4, 4], the gradient after DDP's average is 104.5000, expected 105.0000.

# %% my_loss
# Not yet. With 16 examples, split as [4, 4, 4, 4], the gradient after DDP's average is ...
# solution, with `return losses.sum() * n / batch` as `return losses.sum() / batch`

# %% my_loss
# Not yet. With 17 examples, split as [5, 4, 4, 4], the gradient after DDP's average is 111.5625, expected 105.0000.
# solution, with `return losses.sum() * n / batch` as `return losses.sum() / n`

# %% my_loss
# Not yet. With 16 examples, split as [4, 4, 4, 4], the gradient after ...
# solution, with `return losses.sum() * n / batch` as `return losses.mean() * len(losses) * batch / n`

# %% my_loss
# Not yet. With 16 examples, rank 0 returned 69.0, expected a tensor with one element.
# solution, with `return losses.sum() * n / batch` as `return losses.sum().item() * n / batch`

# %% my_loss
# Not yet. With 16 examples, rank 0 returned a tensor of shape [4], expected a tensor with one element.
# solution, with `return losses.sum() * n / batch` as `return losses * n / batch`

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
# Not yet. When only rank 0 has signed, and the last group was [0, 1, 2, 3], rank 0 returned [0], expected None.

# %% majority
# Solved. Only a list with more than half of the last group continues, so two disjoint lists cannot both continue.
def majority(store, name, grace, last):
    members = quorum(store, name, grace)
    return members if 2 * len(set(members) & set(last)) > len(last) else None

# %% majority
# Solved. Only a list with more than half of the last group continues, so two disjoint lists cannot both continue.
def majority(store, name, grace, last):
    members = quorum(store, name, grace)
    if sum(other in members for other in last) > len(last) // 2:
        return members

# %% majority
# Solved. Only a list with more than half of the last group continues, so two disjoint lists cannot both continue.
def majority(store, name, grace, last):
    members = quorum(store, name, grace)
    gone = [other for other in last if other not in members]
    return None if len(gone) >= len(last) / 2 else members

# %% majority
# Not yet. When only rank 0 has signed, and the last group was [0, 1, 2, 3], rank 0 returned [0], expected None.
# skeleton, with `return quorum(store, name, grace)` as `members = quorum(store, name, grace); return members`

# %% majority
# Not yet. When [0, 3] have signed, and 3 is new, and the last group was [0, 1, 2], rank 0 returned [0, 3],
# expected None.
def majority(store, name, grace, last):
    members = quorum(store, name, grace)
    return members if 2 * len(members) > len(last) else None

# %% majority
# Not yet. When half have signed, and the last group was [0, 1, 2, 3], rank 0 returned [0, 1], expected None.
def majority(store, name, grace, last):
    members = quorum(store, name, grace)
    return members if 2 * len(set(members) & set(last)) >= len(last) else None

# %% majority
# Not yet. When all but the last rank have signed, and the last group ...
def majority(store, name, grace, last):
    members = quorum(store, name, grace)
    return members if members == last else None

# %% majority
# Not yet. When all have signed, and the last group was [0, ...
def majority(store, name, grace, last):
    members = quorum(store, name, grace)
    return 2 * len(set(members) & set(last)) > len(last)

# %% majority: without a quorum
# Not yet. Rank 0 did not call `quorum(store, name, grace)`.
# skeleton, with `return quorum(store, name, grace)` as `return list(last)`
