# %% World(3)
# cell `init_rpc(`
turn = threading.Lock()

# %% my_step_in_turn: solution
# Solved. The step waits for its turn, and loses nothing that came before.

# %% my_step_in_turn: skeleton
# Not yet. ...

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
# Not yet. The step read the values before its turn, and has overwritten what came meanwhile: -1, expected 9.
turn = threading.Lock()

def my_step_in_turn(context, parameter):
    values = parameter.local_value()
    gradient = dist_autograd.get_gradients(context)[values]
    new = values.detach() - gradient
    with turn:
        values.detach().copy_(new)

# %% my_step_in_turn
# Not yet. The step still holds `turn`, expected it to let go ...
# answer "does nothing", with `pass` as `turn.acquire(); values.detach().sub_(gradient)`

# %% my_step_in_turn
# Not yet. The value is 11, expected 9: the 10 that came meanwhile ...
# answer "in one block", with `with turn, torch.no_grad():` as `with turn:`
# and `values.sub_(gradient)` as `values.detach().add_(gradient)`

# %% my_step_in_turn
# Not yet. Rank 0 raised RuntimeError('a leaf Variable that requires grad ...
# answer "in one block", with `with turn, torch.no_grad():` as `with turn:`

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
# Solved. What is too old is refused, one update at a time, and what `read` returns belongs together.

# %% Bounded: skeleton
# Not yet. With a limit of 1, an update that was 2 updates old returned True, expected False.

# %% Bounded: that makes new values
# Solved. What is too old is refused, one update at a time, and what `read` returns belongs together.
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
# Solved. What is too old is refused, one update at a time, and what `read` returns belongs together.
# solution, with `self.values -= gradient` as `self.values = self.values - gradient`
# and `self.values.clone()` as `self.values`

# %% Bounded: the oldest that is taken
# Solved. What is too old is refused, one update at a time, and what `read` returns belongs together.
# solution, with `threading.Lock()` as `threading.RLock()`
# and `self.version - version > self.limit` as `version < self.version - self.limit`

# %% Bounded
# Not yet. With a limit of 0, two updates came at the same time with gradients of the same version, and both were ...
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
# Not yet. What `read` has returned changes with later updates ...
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

# %% Bounded: that is not there
# Not yet. ... has no function `Bounded`: run the cell that defines it ...
globals().pop("Bounded", None)

# %% World(4): SharedOptimizer, Bounded

# %% World(4)
# Nobody has started RPC.

# %% SharedOptimizer: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% Bounded: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass
