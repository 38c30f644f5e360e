# %% World(3)
# cell `init_rpc(` of solutions

# %% my_step_in_turn: solution
# Solved. The step waits for its turn, and loses nothing that came before.

# %% my_step_in_turn: skeleton
# Not yet. The step has subtracted nothing: the value is 10, expected 9.

# %% my_step_in_turn: in one block
# Solved. The step waits for its turn, and loses nothing that came before.
turn = threading.Lock()

def my_step_in_turn(context, parameter):
    values = parameter.local_value()
    gradient = dist_autograd.get_gradients(context)[values]
    with turn, torch.no_grad():
        values.sub_(gradient)

# %% my_step_in_turn
# Solved. The step waits for its turn, and loses nothing that came before.
# answer "in one block", with `with turn, torch.no_grad():` as `with turn:`
# and `values.sub_(gradient)` as `values.detach().sub_(gradient)`

# %% my_step_in_turn
# Solved. The step waits for its turn, and loses nothing that came before.
turn = threading.Lock()

def my_step_in_turn(context, parameter):
    values = parameter.local_value()
    gradient = dist_autograd.get_gradients(context)[values]
    turn.acquire()
    with torch.no_grad():
        values.copy_(values - gradient)
    turn.release()

# %% my_step_in_turn
# Solved. The step waits for its turn, and loses nothing that came before.
turn = threading.Lock()

def my_step_in_turn(context, parameter):
    values = parameter.local_value()
    gradient = dist_autograd.get_gradients(context)[values]
    with torch.no_grad():
        with turn:
            values -= gradient

# %% my_step_in_turn: does nothing
# Not yet. The step has subtracted nothing: the value is 10, expected 9.
turn = threading.Lock()

def my_step_in_turn(context, parameter):
    values = parameter.local_value()
    gradient = dist_autograd.get_gradients(context)[values]
    pass

# %% my_step_in_turn
# Not yet. The step changed the values while another thread held ...
# answer "in one block", with `with turn, torch.no_grad():` as `with torch.no_grad():`

# %% my_step_in_turn
# Not yet. The step read the values before its turn, and overwrote an update that came meanwhile: the value is -1,
# expected 9.
turn = threading.Lock()

def my_step_in_turn(context, parameter):
    values = parameter.local_value()
    gradient = dist_autograd.get_gradients(context)[values]
    new = values.detach() - gradient
    with turn:
        values.detach().copy_(new)

# %% my_step_in_turn
# Not yet. The step still holds `turn`, expected it to release ...
# answer "does nothing", with `pass` as `turn.acquire(); values.detach().sub_(gradient)`

# %% my_step_in_turn
# Not yet. The value is 11, expected 9: the 10 that came meanwhile ...
# answer "in one block", with `with turn, torch.no_grad():` as `with turn:`
# and `values.sub_(gradient)` as `values.detach().add_(gradient)`

# %% my_step_in_turn
# Not yet. Rank 0 raised RuntimeError('a leaf Variable that requires grad ...
# answer "in one block", with `with turn, torch.no_grad():` as `with turn:`

# %% my_step_in_turn: ignores the gradient
# Not yet. Two steps with the gradients [2.0, -1.0, 3.0] changed three zeros to [-2.0, -2.0, -2.0], expected [-4.0, 2.0,
# -6.0]: subtract `gradient`, and do not change it.
# answer "in one block", with `values.sub_(gradient)` as `values -= 1`

# %% my_step_in_turn: changes the gradient
# Not yet. Two steps with the gradients [2.0, -1.0, 3.0] changed three zeros to [0.0, 0.0, 0.0], expected [-4.0, 2.0,
# -6.0]: ...
# answer "in one block", with `values.sub_(gradient)` as `values += gradient.neg_()`

# %% my_staleness: solution
# Solved. Each update counts the updates of other trainers since its read.

# %% my_staleness: skeleton
# Not yet. For the log [trainer0 reads, trainer1 reads, trainer1 updates, ...] it returned [0, 0], expected [0, 1].

# %% my_staleness: looks back
# Solved. Each update counts the updates of other trainers since its read.
def my_staleness(log):
    result = []
    for place, (trainer, event, _) in enumerate(log):
        if event != "updates":
            continue
        count = 0
        for other, what, _ in reversed(log[:place]):
            if (other, what) == (trainer, "reads"):
                break
            if what == "updates":
                count += 1
        result.append(count)
    return result

# %% my_staleness: counters
# Solved. Each update counts the updates of other trainers since its read.
def my_staleness(log):
    counts, staleness = {}, ()
    for trainer, event, seconds in log:
        if event == "reads":
            counts[trainer] = 0
        elif event == "updates":
            staleness += (counts[trainer],)
            for other in counts:
                counts[other] += 1
    return staleness

# %% my_staleness
# Not yet. For the log [trainer0 reads, trainer0 updates, trainer0 reads, ...] it returned [0, 1], expected [0, 0].
# solution, with `version_read[trainer] = version` as `version_read.setdefault(trainer, version)`

# %% my_staleness: counts failed steps
# Not yet. For the log [trainer0 reads, trainer1 reads, ...] it returned [1, 0, 3], expected [0, 0, 2].
def my_staleness(log):
    counts, staleness = {}, []
    for trainer, event, seconds in log:
        if event == "reads":
            counts[trainer] = 0
        else:
            if event == "updates":
                staleness.append(counts[trainer])
            for other in counts:
                counts[other] += 1
    return staleness

# %% my_staleness: for each trainer
# Not yet. For the log [trainer0 reads, trainer0 updates, ...] it returned {'trainer0': [0, 0]}, expected [0, 0].
def my_staleness(log):
    staleness, version, version_read = {}, 0, {}
    for trainer, event, seconds in log:
        if event == "reads":
            version_read[trainer] = version
        if event == "updates":
            staleness.setdefault(trainer, []).append(version - version_read[trainer])
            version += 1
    return staleness

# %% my_staleness: without return
# Not yet. For the log [trainer0 reads, ...] it returned None, expected [0, 0].
# solution, with `return staleness` as `pass`

# %% my_staleness: empties the log
# Not yet. `my_staleness` changed the log, expected it unchanged: the figure draws it.
def my_staleness(log):
    staleness, version_read = [], {}
    while log:
        trainer, event, seconds = log.pop(0)
        if event == "reads":
            version_read[trainer] = len(staleness)
        if event == "updates":
            staleness.append(len(staleness) - version_read[trainer])
    return staleness

# %% my_staleness: counts itself
# Not yet. For the log [trainer0 reads, ...] it returned [1, 1], expected [0, 0].
# solution, with `version - version_read[trainer]` as `version + 1 - version_read[trainer]`

# %% my_staleness: the error of the answer
# Not yet. Rank 0 raised KeyError ...
# solution, with `"reads"` as `"read"`

# %% MyCheckpoint: solution
# Solved. The file was complete at every moment, and `restore` copied the values of both ranks into the new model.

# %% MyCheckpoint: skeleton
# Not yet. The second `save` raised an error while it wrote, and the first checkpoint is gone, expected it to stay ...

# %% MyCheckpoint: first half
# Not yet. After `restore` the parameters of the trainer are [0.0], expected [5.0]. These are the values before ...
class MyCheckpoint:
    def __init__(self, path):
        self.path = path

    def save(self, model, losses, hidden):
        values = [reference.to_here() for reference in model.parameter_rrefs()]
        torch.save((losses, hidden, values), self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def restore(self, model):
        losses, hidden, values = torch.load(self.path)
        return losses, hidden

# %% MyCheckpoint: another format, written on the owners without `write`
# Solved. The file was complete at every moment, and `restore` copied the values of both ranks into the new model.
class MyCheckpoint:
    def __init__(self, path):
        self.path = path
        self.other = os.path.join(os.path.dirname(path), "other")

    def save(self, model, losses, hidden):
        values = {place: rref.to_here() for place, rref in enumerate(model.parameter_rrefs())}
        with open(self.other, "wb") as file:
            torch.save({"losses": losses, "hidden": hidden, "values": values}, file)
        os.rename(self.other, self.path)

    def restore(self, model):
        saved = torch.load(self.path)
        for place, rref in enumerate(model.parameter_rrefs()):
            rref.remote().detach().rpc_sync().copy_(saved["values"][place])
        return [saved["losses"], saved["hidden"]]

# %% MyCheckpoint: in memory first
# Not yet. `save` changed the old file, so the file at `path` is incomplete for a moment, expected a new file ...
class MyCheckpoint:
    def __init__(self, path):
        self.path = path

    def save(self, model, losses, hidden):
        import io
        values = [reference.to_here().detach() for reference in model.parameter_rrefs()]
        buffer = io.BytesIO()
        torch.save((losses, hidden, values), buffer)
        with open(self.path, "wb") as file:
            file.write(buffer.getvalue())

    def restore(self, model):
        losses, hidden, all_values = torch.load(self.path)
        for reference, values in zip(model.parameter_rrefs(), all_values, strict=True):
            rpc.rpc_sync(reference.owner(), write, (reference, values))
        return losses, hidden

# %% MyCheckpoint: removes the old file first
# Not yet. The second `save` raised an error while it wrote, and the first checkpoint is gone, expected it to stay ...
# solution, with `torch.save(` as `os.path.exists(self.path) and os.remove(self.path); torch.save(`

# %% MyCheckpoint: leaves the new file
# Not yet. `save` left no file at `path`, expected the checkpoint there.
# solution, with `os.replace(self.path + ".new", self.path)` as `pass`

# %% MyCheckpoint
# Not yet. `restore` returned a hidden state with the values None, expected the values at `save`, [1.5, 2.5].
# solution, with `torch.save((losses, hidden, values)` as `torch.save((losses, None, values)`

# %% MyCheckpoint: one loss more
# Not yet. `restore` returned the losses [4.0, 3.0, 2.0, 0.0], expected [4.0, 3.0, 2.0].
# solution, with `torch.save((losses, hidden, values)` as `torch.save((losses + [0.0], hidden, values)`

# %% MyCheckpoint: returns the losses alone
# Not yet. `restore` returned a list of 3, expected a pair: losses and hidden state.
# solution, with `return losses, hidden` as `return losses`

# %% MyCheckpoint: only what is here
# Not yet. After `restore` the parameters of the server are [0.0, 0.0], expected [1.0, 2.0]. These are the values ...
# solution, with `rpc.rpc_sync(reference.owner(), write, (reference, values))` as
# `reference.is_owner() and write(reference, values)`

# %% MyCheckpoint: writes into a copy
# Not yet. After `restore` the parameters of the server are [0.0, 0.0], expected [1.0, 2.0]. These are the values ...
# solution, with `rpc.rpc_sync(reference.owner(), write, (reference, values))` as
# `reference.to_here().detach().copy_(values)`

# %% MyCheckpoint: in another order
# Not yet. After `restore` the parameters of the server are [2.0, 1.0], expected [1.0, 2.0].
# solution, with `zip(model.parameter_rrefs(), all_values, strict=True)` as `zip(model.parameter_rrefs(), all_values[::-1])`

# %% MyCheckpoint: saves the references
# Not yet. Rank 0 raised ...
# solution, with `reference.to_here().detach()` as `reference`

# %% MyCheckpoint: fetches the values when it restores
# Not yet. After `restore` the parameters of the trainer are [15.0], expected [5.0]. These are later values ...
class MyCheckpoint:
    def __init__(self, path):
        self.path = path

    def save(self, model, losses, hidden):
        MyCheckpoint.kept = model
        torch.save((losses, hidden), self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def restore(self, model):
        losses, hidden = torch.load(self.path)
        old = MyCheckpoint.kept
        for reference, source in zip(model.parameter_rrefs(), old.parameter_rrefs()):
            rpc.rpc_sync(reference.owner(), write, (reference, source.to_here()))
        return losses, hidden

# %% MyCheckpoint: values in a variable, not in the file
# Not yet. After `restore` the parameters of the trainer are [15.0], expected [5.0]. These are later values ...
# solution, with `torch.save((losses, hidden, values)`
# as `MyCheckpoint.values = [value.clone() for value in values]; torch.save((losses, hidden)`
# and `losses, hidden, all_values = torch.load(self.path)`
# as `losses, hidden = torch.load(self.path); all_values = MyCheckpoint.values`

# %% MyCheckpoint: values in a second file
# Not yet. Rank 0 raised FileNotFoundError: ... The check restored a copy of the file at `path`, expected one file that
# holds everything.
# solution, with `torch.save((losses, hidden, values)`
# as `torch.save(values, self.path + ".values"); torch.save((losses, hidden)`
# and `losses, hidden, all_values = torch.load(self.path)`
# as `losses, hidden = torch.load(self.path); all_values = torch.load(self.path + ".values")`

# %% MyCheckpoint: that is not there
# Not yet. ... has no function `MyCheckpoint`: run the cell that defines it ...
globals().pop("MyCheckpoint", None)

# %% SharedOptimizer: solution
# Solved. Each step took the gradients of its own context, and no two were under way at the same time.

# %% SharedOptimizer: skeleton
# Not yet. Two steps of the optimizer ran at the same time, expected one after another.

# %% SharedOptimizer: with a lock of the module
# Solved. Each step took the gradients of its own context, and no two were under way at the same time.
only_one = threading.RLock()

class SharedOptimizer:
    def __init__(self, parameters, optimizer):
        self.parameters, self.optimizer = parameters, optimizer

    def step(self, context):
        only_one.acquire()
        try:
            self.optimizer.zero_grad()
            for parameter, gradient in dist_autograd.get_gradients(context).items():
                parameter.grad = gradient
            self.optimizer.step()
        finally:
            only_one.release()

# %% SharedOptimizer: asks under the lock
# Solved. Each step took the gradients of its own context, and no two were under way at the same time.
class SharedOptimizer:
    def __init__(self, parameters, optimizer):
        self.parameters = parameters
        self.optimizer = optimizer
        self.turn = threading.Lock()

    def step(self, context):
        with self.turn:
            gradients = dist_autograd.get_gradients(context)
            for parameter in self.parameters:
                parameter.grad = gradients.get(parameter)
            self.optimizer.step()

# %% SharedOptimizer: a semaphore
# Solved. Each step took the gradients of its own context, and no two were under way at the same time.
# solution, with `self.turn = threading.Lock()` as `self.turn = threading.Semaphore(1)`
# and `gradients.get(parameter)` as `gradients[parameter] if parameter in gradients else None`

# %% SharedOptimizer
# Not yet. Two steps of the optimizer ran at the same time, expected one after another.
# solution, with `with self.turn:` as `if True:`

# %% SharedOptimizer
# Not yet. After two steps parameter 1 is -2, expected -1. It had no gradient in the second context.
# solution,
# with `parameter.grad = gradients.get(parameter)` as `parameter.grad = gradients.get(parameter, parameter.grad)`

# %% SharedOptimizer
# Not yet. While the optimizer made one trainer's step, the gradients of another trainer replaced its gradients.
class SharedOptimizer:
    def __init__(self, parameters, optimizer):
        self.parameters = parameters
        self.optimizer = optimizer
        self.turn = threading.Lock()

    def step(self, context):
        gradients = dist_autograd.get_gradients(context)
        for parameter in self.parameters:
            parameter.grad = gradients.get(parameter)
        with self.turn:
            self.optimizer.step()

# %% SharedOptimizer
# Not yet. For two calls of `step` the optimizer made 0 steps, expected 2.
# solution, with `            self.optimizer.step()` as `            pass`

# %% SharedOptimizer
# Not yet. Rank 0 raised KeyError ...
# solution, with `gradients.get(parameter)` as `gradients[parameter]`

# %% SharedOptimizer
# Not yet. Rank 0 raised AttributeError ...
# solution, with `self.optimizer.step()` as `self.optimiser.step()`

# %% SharedOptimizer: that is not there
# Not yet. ... has no function `SharedOptimizer`: run the cell that defines it ...
globals().pop("SharedOptimizer", None)

# %% Bounded: solution
# Solved. Updates that were too old were refused, one update ran at a time, and `read` returned matching values and
# versions.

# %% Bounded: skeleton
# Not yet. With a limit of 1, an update that was 2 updates old returned True, expected False.

# %% Bounded: that makes new values
# Solved. Updates that were too old were refused, one update ran at a time, and `read` returned matching values and
# versions.
class Bounded:
    def __init__(self, values, limit):
        self.values, self.limit, self.version, self.turn = values, limit, 0, threading.Condition()

    def read(self):
        with self.turn:
            return self.values, self.version

    def update(self, gradient, version):
        with self.turn:
            fresh = self.version <= version + self.limit
            if fresh:
                self.values = self.values - gradient
                self.version += 1
        return fresh

# %% Bounded: a new tensor
# Solved. Updates that were too old were refused, one update ran at a time, and `read` returned matching values and
# versions.
# solution, with `self.values -= gradient` as `self.values = self.values - gradient`
# and `self.values.clone()` as `self.values`

# %% Bounded: a list instead of a tuple
# Solved. ...
# solution, with `return self.values.clone(), self.version` as `return [self.values.clone(), self.version]`

# %% Bounded: the oldest that is taken
# Solved. Updates that were too old were refused, one update ran at a time, and `read` returned matching values and
# versions.
# solution, with `threading.Lock()` as `threading.RLock()`
# and `self.version - version > self.limit` as `version < self.version - self.limit`

# %% Bounded
# Not yet. With a limit of 0, two updates with gradients of the same version came at the same time, and both were ...
class Bounded:
    def __init__(self, values, limit):
        self.values = values
        self.limit = limit
        self.version = 0
        self.turn = threading.Lock()

    def read(self):
        with self.turn:
            return self.values.clone(), self.version

    def update(self, gradient, version):
        if True:
            if self.version - version > self.limit:
                return False
            self.values -= gradient
            self.version += 1
            return True

# %% Bounded
# Not yet. `read` returned -1 as the value of version 0, while an update was under way, expected 0.
class Bounded:
    def __init__(self, values, limit):
        self.values = values
        self.limit = limit
        self.version = 0
        self.turn = threading.Lock()

    def read(self):
        if True:
            return self.values.clone(), self.version

    def update(self, gradient, version):
        with self.turn:
            if self.version - version > self.limit:
                return False
            self.values -= gradient
            self.version += 1
            return True

# %% Bounded
# Not yet. The values that `read` returned change with later updates ...
# solution, with `self.values.clone()` as `self.values`

# %% Bounded
# Not yet. With a limit of 1, an update that was one update old returned False, expected True.
# solution, with `> self.limit` as `>= self.limit`

# %% Bounded
# Not yet. With a limit of 1, an update that was 2 updates old left version 3, expected 2.
class Bounded:
    def __init__(self, values, limit):
        self.values = values
        self.limit = limit
        self.version = 0
        self.turn = threading.Lock()

    def read(self):
        with self.turn:
            return self.values.clone(), self.version

    def update(self, gradient, version):
        with self.turn:
            if self.version - version > self.limit:
                self.version += 1
                return False
            self.values -= gradient
            self.version += 1
            return True

# %% Bounded
# Not yet. `read` returned 0.0, expected a pair ...
# solution, with `return self.values.clone(), self.version` as `return self.values.clone()`

# %% Bounded
# Not yet. Rank 2 raised AttributeError ...
# solution, with `self.version += 1` as `self.versions += 1`

# %% Bounded: ignores the gradient
# Not yet. With a limit of 1, an update that was one update old, with a gradient of 3, left -2, expected -4.
# solution, with `self.values -= gradient` as `self.values -= 1`

# %% Bounded: that is not there
# Not yet. ... has no function `Bounded`: run the cell that defines it ...
globals().pop("Bounded", None)

# %% World(4): my_step_in_turn, my_staleness, MyCheckpoint, SharedOptimizer, Bounded

# %% World(4)
# Nobody has started RPC.

# %% SharedOptimizer: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% Bounded: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% MyCheckpoint: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass
