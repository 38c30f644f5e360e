# %% World(4)
# cell `import select` of solutions
import threading
from itertools import zip_longest
# cell `def connect(` of solutions
# cell `def as_bytes(` of solutions
# cell `class Done(` of solutions
# cell `class Links(` of solutions
# cell `class Summing(` of solutions
# cell `class Ring(` of solutions
# cell `register("ring"` of solutions

# %% my_exchange: solution
# Solved. 4 bytes and 32 MiB went round the ring, and nothing at all, and the end of a connection was noticed.

# %% my_exchange
# Solved. 4 bytes and 32 MiB went round the ring, and nothing at all, and the end of a connection was noticed.
def my_exchange(right, left, outgoing, incoming):
    while outgoing or incoming:
        piece, outgoing = outgoing[:65536], outgoing[65536:]
        part, incoming = incoming[:65536], incoming[65536:]
        right.sendall(piece)
        while part:
            received = left.recv_into(part)
            if received == 0:
                raise ConnectionError("gone")
            part = part[received:]

# %% my_exchange
# Solved. 4 bytes and 32 MiB went round the ring, and nothing at all, and the end of a connection was noticed.
def my_exchange(right, left, outgoing, incoming):
    thread = threading.Thread(target=right.sendall, args=[outgoing])
    thread.start()
    try:
        place = 0
        while place < len(incoming):
            received = left.recv(min(len(incoming) - place, 2**20))
            if not received:
                raise ConnectionResetError("the end")
            incoming[place : place + len(received)] = received
            place += len(received)
    finally:
        thread.join()

# %% my_exchange
# Solved. 4 bytes and 32 MiB went round the ring, and nothing at all, and the end of a connection was noticed.
def my_exchange(right, left, outgoing, incoming):
    right.setblocking(False)
    left.setblocking(False)
    end = time.monotonic() + 5
    sent = received = 0
    while sent < len(outgoing) or received < len(incoming):
        if time.monotonic() > end:
            raise TimeoutError("nobody came")
        try:
            sent += right.send(outgoing[sent:])
        except BlockingIOError:
            pass
        try:
            if received < len(incoming):
                number = left.recv_into(incoming[received:])
                if not number:
                    raise ConnectionAbortedError("the end")
                received += number
        except BlockingIOError:
            time.sleep(0)

# %% my_exchange: skeleton
# Not yet. 32 MiB: on rank ... It was stuck: who sends has to receive meanwhile.

# %% my_exchange: receives first
# Not yet. 4 bytes: on rank ... It was stuck: who sends has to receive meanwhile.
def my_exchange(right, left, outgoing, incoming):
    while incoming:
        incoming = incoming[left.recv_into(incoming) :]
    right.sendall(outgoing)

# %% my_exchange: sends once
# Not yet. 32 MiB: on rank ... It was stuck: who sends has to receive meanwhile.
def my_exchange(right, left, outgoing, incoming):
    right.send(outgoing)
    while incoming:
        incoming = incoming[left.recv_into(incoming) :]

# %% my_exchange: receives once
# Not yet. 32 MiB: on rank ...
def my_exchange(right, left, outgoing, incoming):
    thread = threading.Thread(target=right.sendall, args=[outgoing])
    thread.start()
    if incoming:
        left.recv_into(incoming)
    thread.join()

# %% my_exchange: both
# Not yet. ... is not what the left neighbour sent.
# solution, with `while outgoing or incoming:` as `while outgoing and incoming:`

# %% my_exchange: spins
# Not yet. the left neighbour has closed the connection: on rank 1 the connection has ended, and ...
def my_exchange(right, left, outgoing, incoming):
    while outgoing or incoming:
        sources, targets = [left] if incoming else [], [right] if outgoing else []
        readable, writable, _ = select.select(sources, targets, [], left.gettimeout())
        if not readable and not writable:
            raise TimeoutError("no neighbour was ready")
        if readable:
            received = left.recv_into(incoming)
            incoming = incoming[received:]
        if writable:
            outgoing = outgoing[right.send(outgoing) :]

# %% my_exchange: returns
# Not yet. the left neighbour has closed the connection: on rank 1 my_exchange returned ...
# solution, with `raise ConnectionError("the left neighbour has closed the connection")` as `return`

# %% my_exchange: error
# Not yet. 4 bytes: on rank 0 NameError: name 'missing' ...
def my_exchange(*arguments):
    missing

# %% Sharding: solution
# Solved. Every rank sent 48 bytes, and sharded momentum trains as one process does.

# %% Sharding: by hops
# Solved. Every rank sent 48 bytes, and sharded momentum trains as one process does.
class Sharding(Ring):
    def reduce_scatter(self, outputs, inputs, opts):
        rank, n = self.rank(), self.size()
        parts = [part.clone() for part in inputs[0]]
        received = torch.empty_like(parts[0])
        for step in range(n - 1):
            self.exchange(parts[(rank - step - 1) % n], received)
            parts[(rank - step - 2) % n] += received
        outputs[0].copy_(parts[rank])
        return Done(outputs)

# %% Sharding
# Solved. Every rank sent 48 bytes, and sharded momentum trains as one process does.
class Sharding(Ring):
    def reduce_scatter(self, outputs, inputs, opts):
        rank, n = self.rank(), self.size()
        stacked = torch.stack(inputs[0])
        for distance in range(n - 1, 0, -1):
            outgoing = stacked[(rank + distance) % n]
            incoming = torch.empty_like(outgoing)
            self.exchange(outgoing, incoming)
            stacked[(rank + distance - 1) % n].add_(incoming)
        torch.mul(stacked[rank], 1, out=outputs[0])
        return Done(outputs)

# %% Sharding: skeleton
# Not yet. Rank 0 holds [0.0, 1.0, 2.0, 3.0], expected [0.0, 10.0, 20.0, 30.0].

# %% Sharding: whole
# Not yet. The numbers are right. Rank 0 sent 96 bytes, and a reduce-scatter sends 48: 48 too many.
class Sharding(Ring):
    def reduce_scatter(self, outputs, inputs, opts):
        whole = torch.cat(inputs[0])
        self.allreduce([whole], None)
        outputs[0].copy_(whole.tensor_split(self.size())[self.rank()])
        return Done(outputs)

# %% Sharding: changed
# Not yet. Rank 0 has changed `inputs` ...
# answer "by hops", with `parts = [part.clone() for part in inputs[0]]` as `parts = inputs[0]`

# %% Sharding: mean
# Not yet. Rank 0 holds [0.0, 2.5, 5.0, 7.5], expected ...
# answer "by hops", with `outputs[0].copy_(parts[rank])` as `outputs[0].copy_(parts[rank] / n)`

# %% Sharding: a step less
# Not yet. Rank 0 holds [...
# answer "by hops", with `for step in range(n - 1):` as `for step in range(n - 2):`

# %% Sharding: another's
# Not yet. Rank 0 holds [...
# answer "by hops", with `outputs[0].copy_(parts[rank])` as `outputs[0].copy_(parts[(rank + 1) % n])`

# %% Sharding: error
# Not yet. Rank 0 raised NameError: name 'missing' is not defined
# answer "by hops", with `received = torch.empty_like(parts[0])` as `received = torch.empty_like(missing)`

# %% Sharding: none
# Not yet. Rank 0 raised ...
Sharding = Ring

# %% Compressing: solution
# Solved. All ranks hold the same sum, and each sent 48 bytes, half of the ring's.

# %% Compressing: adds in float32
# Solved. All ranks hold the same sum, and each sent 48 bytes, half of the ring's.
class Compressing(Ring):
    def allreduce(self, tensors, opts):
        rank, n = self.rank(), self.size()
        chunks = tensors[0].view(-1).tensor_split(n)
        incoming = torch.empty(len(chunks[0]), dtype=torch.bfloat16)
        for step in range(n - 1):
            mine = chunks[(rank - step - 1) % n]
            self.exchange(chunks[(rank - step) % n].bfloat16(), incoming[: len(mine)])
            mine += incoming[: len(mine)]
        chunks[(rank + 1) % n].copy_(chunks[(rank + 1) % n].bfloat16())
        for step in range(n - 1):
            mine = chunks[(rank - step) % n]
            self.exchange(chunks[(rank - step + 1) % n].bfloat16(), incoming[: len(mine)])
            mine.copy_(incoming[: len(mine)])
        return Done(tensors)

# %% Compressing
# Solved. All ranks hold the same sum, and each sent 48 bytes, half of the ring's.
class Compressing(Ring):
    def exchange(self, outgoing, incoming):
        received = incoming.to(torch.bfloat16)
        super().exchange(outgoing.to(torch.bfloat16), received)
        incoming.copy_(received)

    def allreduce(self, tensors, opts):
        work = super().allreduce(tensors, opts)
        tensors[0].copy_(tensors[0].to(torch.bfloat16))
        return work

# %% Compressing: skeleton
# Not yet. The numbers are right. Rank 0 sent 96 bytes, and the ring in bfloat16 sends ...

# %% Compressing: unrounded
# Not yet. Ranks 0 and 1 hold different bits in place ...
# answer "adds in float32", without `chunks[(rank + 1) % n].copy_(chunks[(rank + 1) % n].bfloat16())`

# %% Compressing: mean
# Not yet. Rank 0 holds ...
# solution, with `tensors[0].copy_(compressed)` as `tensors[0].copy_(compressed / 4)`

# %% Compressing: float16
# Not yet. Rank 0 holds ...
# solution, with `compressed = tensors[0].to(torch.bfloat16)` as `compressed = tensors[0].to(torch.float16)`

# %% Compressing: a chunk dropped
# Not yet. Rank 0 holds ...
# answer "adds in float32", with `for step in range(n - 1):` as `for step in range(n - 2):`

# %% Compressing: not copied back
# Not yet. Rank 0 holds ...
# solution, without `tensors[0].copy_(compressed)`

# %% Compressing: bfloat16
# Not yet. Rank 0 holds torch.bfloat16, expected torch.float32.
class Compressing(Ring):
    def allreduce(self, tensors, opts):
        tensors[0].data = tensors[0].bfloat16()
        return super().allreduce(tensors, opts)
