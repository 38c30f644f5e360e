# %% World(2)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`
# cell `class Bucket`
# cell `def one_bucket(`
# cell `class EarlyBucketOfTheLesson`
EarlyBucket = MyEarlyBucket = EarlyBucketOfTheLesson
# cell `def early_buckets(`, up to `variants[`

# %% buckets_by_size: solution
# Solved. Every rank has filled its buckets as DDP does, from the last parameter to the first.

# %% buckets_by_size: skeleton
# Not yet. Bucket 0 of rank 0 ends with 16 bytes, before it has reached the limit of 1200.

# %% buckets_by_size
# Not yet. Bucket 0 of rank 0 continues after 2384 bytes, expected it to close at the limit of 1200.
# solution, with `member.nbytes` as `member.numel()`

# %% buckets_by_size: from the first parameter on
# Not yet. The buckets of rank 0 hold the parameters [[0, 1, 2], [3, 4, 5, 6, 7, 8]], expected the order from last to
# first.
def buckets_by_size(parameters, limit):
    buckets, size = [[]], 0
    for parameter in parameters:
        if size >= limit:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += parameter.nbytes
    return buckets

# %% buckets_by_size
# Not yet. On rank 0 parameter 0 of 9 is in 0 buckets, expected 1.
# answer "from the first parameter on", with `for parameter in parameters:` as `for parameter in reversed(parameters):`
# and `return buckets` as `return buckets[:-1]`

# %% buckets_by_size
# Not yet. Bucket 0 of rank 0 is empty, expected at least one parameter.
# answer "from the first parameter on", with `for parameter in parameters:` as `for parameter in reversed(parameters):`
# and `return buckets` as `return [[]] + buckets`

# %% buckets_by_size
# Not yet. Rank 0 returned a list of 2, expected a list of lists of parameters.
# answer "from the first parameter on", with `for parameter in parameters:` as `for parameter in reversed(parameters):`
# and `return buckets` as `return [len(bucket) for bucket in buckets]`

# %% buckets_by_size
# Not yet. Rank 0 returned None, expected a list of lists of parameters.
# answer "from the first parameter on", with `for parameter in parameters:` as `for parameter in reversed(parameters):`
# and `return buckets` as `return None`

# %% buckets_by_size: tuples
# Solved. ...
def buckets_by_size(parameters, limit):
    buckets, bucket = [], ()
    for parameter in parameters[::-1]:
        bucket += (parameter,)
        if sum(4 * p.numel() if p.dtype == torch.float32 else 8 * p.numel() for p in bucket) >= limit:
            buckets.append(bucket)
            bucket = ()
    return buckets + [bucket] * bool(bucket)

# %% buckets_by_size: by DDP's own function
# Solved. ...
def buckets_by_size(parameters, limit):
    last_first = parameters[::-1]
    numbers, _ = dist._compute_bucket_assignment_by_size(last_first, [limit])
    return [[last_first[number] for number in bucket] for bucket in numbers]

# %% buckets_by_size: that stay below the limit
# Not yet. Bucket 0 of rank 0 ends with 1184 bytes, before it has reached the limit of 1200.
# solution, with `if sum(member.nbytes for member in buckets[-1]) >= limit:`
# as `if buckets[-1] and sum(p.nbytes for p in [*buckets[-1], parameter]) > limit:`

# %% two_buckets: solution
# Solved. Every rank has the averages, and its first bucket travelled while the backward pass still ran.

# %% two_buckets: skeleton
# Not yet. Rank 0 called all_reduce once in a step, expected twice.

# %% two_buckets: split after three
# Solved. ...
def two_buckets(model):
    parameters = list(model.parameters())[::-1]
    buckets = [EarlyBucket(parameters[:3]), EarlyBucket(parameters[3:])]

    def finish():
        for bucket in buckets:
            bucket.finish()

    return model, finish

# %% two_buckets: waits for futures
# Solved. ...
# answer "split after three",
# with `bucket.finish()` as `bucket.work.get_future().wait(); bucket.finish()`

# %% two_buckets
# Not yet. Rank 0 launched its first bucket after the last gradient was complete, expected an earlier launch.
def two_buckets(model):
    parameters = list(model.parameters())[::-1]
    buckets = [Bucket(parameters[:3]), Bucket(parameters[3:])]

    def finish():
        for bucket in buckets:
            [bucket.take(p) for p in bucket.parameters]
            bucket.launch()
            bucket.finish()

    return model, finish

# %% two_buckets
# Not yet. Rank 0 waited for a bucket before the backward pass had ended, expected a wait in `finish` only.
class WaitingBucket(EarlyBucket):
    def launch(self):
        super().launch()
        super().finish()
        self.waiting = set(self.parameters)

    def finish(self):
        pass

def two_buckets(model):
    parameters = list(model.parameters())[::-1]
    WaitingBucket(parameters[:3]), WaitingBucket(parameters[3:])
    return model, lambda: None

# %% two_buckets
# Not yet. After `finish` in step 1, on rank 0 ...
# answer "split after three", with `bucket.finish()` as `bucket.work.wait(); bucket.waiting = set(bucket.parameters)`

# %% two_buckets
# Not yet. Rank 0 waited for only one of its buckets, expected a wait for both. Run the lesson again, from the cell
# with `World` to this check.
# answer "split after three",
# with `bucket.finish()`
# as `bucket.finish() if bucket is buckets[0] else bucket.__dict__.update(waiting=set(bucket.parameters))`

# %% two_buckets
# Not yet. Rank 0 returned a function, expected a model and a function `finish`.
# answer "split after three", with `return model, finish` as `return finish`

# %% two_buckets
# Not yet. Rank 0 raised NameError: name 'nothing' is not defined
# answer "split after three", with `return model, finish` as `return model, nothing`

# %% two_buckets: by ddp
# Solved. ...
def two_buckets(model):
    return DDP(model, bucket_cap_mb=0.000476837158203125), lambda: None

# %% two_buckets
# Not yet. Rank 0 called all_reduce once in a step, expected twice.
# answer "by ddp", with `0.000476837158203125` as `25`

# %% two_buckets
# Not yet. Rank 0 called all_reduce 3 times in a step, expected twice.
# answer "by ddp", with `0.000476837158203125` as `9.5367431640625e-05`

# %% two_buckets: with one for each parameter
# Not yet. Rank 0 called all_reduce 6 times in a step, expected twice.
def two_buckets(model):
    buckets = [EarlyBucket([parameter]) for parameter in model.parameters()]
    return model, lambda: [bucket.finish() for bucket in buckets]

# %% two_buckets: that leave a gradient out
# Not yet. Rank 0 sent 704 bytes in its buckets, expected 992, the size of the gradients.
# answer "split after three", with `parameters[3:]` as `parameters[4:]`

# %% exposed_seconds: solution
# Solved. The exposed seconds are right in all 10 cases.

# %% exposed_seconds: skeleton
# Not yet. With computing = [(0, 1), (1, 3), (6, 7)] and communicating = [(3, 5)], rank 0 returned 0, expected 2.

# %% exposed_seconds: counts all-reduces that overlap twice
# Not yet. With computing = [(0, 3)] and communicating = [(2, 6), (4, 5)], rank 0 returned 4, expected 3.
def exposed_seconds(computing, communicating):
    total = 0
    for begin, end in communicating:
        for other_begin, other_end in sorted(computing):
            if other_begin <= begin:
                begin = max(begin, min(end, other_end))
            elif other_begin < end:
                total += other_begin - begin
                begin = min(end, other_end)
        total += end - begin
    return total

# %% exposed_seconds
# Not yet. With computing = [(0, 3)] and communicating = [(3, 5)], rank 0 returned None, expected 2.
def exposed_seconds(computing, communicating):
    pass

# %% exposed_seconds: all of the communication
# Not yet. With computing = [(0, 3)] and communicating = [(1, 2)], rank 0 returned 1, expected 0.
def exposed_seconds(computing, communicating):
    return sum(end - begin for begin, end in communicating)

# %% exposed_seconds: in quarters of a second
# Solved. ...
def exposed_seconds(computing, communicating):
    def quarters(pairs):
        return {moment for begin, end in pairs for moment in range(int(4 * begin), int(4 * end))}

    return len(quarters(communicating) - quarters(computing)) / 4

# %% MyEarlyBucket: solution
# Solved. In each step, both buckets were launched as soon as they were full, and the gradients are the averages.

# %% MyEarlyBucket: skeleton
# Not yet. In step 1, rank 0 did not launch the bucket of the last layers, expected one launch in every step.

# %% MyEarlyBucket
# Not yet. In step 2, rank 0 did not launch the bucket of the last layers, expected one launch in every step.
# solution, with `super().finish()` as `super().finish(); return`

# %% MyEarlyBucket
# Not yet. In step 1, rank 0 launched the bucket of the last layers 4 times, expected one launch in every step.
# solution, with `if self.missing == 0:` as `if True:`

# %% MyEarlyBucket: launches after the first gradient
# Not yet. In step 1, rank 0 launched the bucket of the last layers before all of its gradients were complete, expected
# a launch of the full bucket.
# solution, with `self.missing == 0` as `self.missing == len(self.parameters) - 1`

# %% MyEarlyBucket: launches at the first of its parameters
# Not yet. In step 1, rank 0 launched the bucket of the last layers before all of its gradients were complete, expected
# a launch of the full bucket.
# solution, with `if self.missing == 0:` as `if parameter is self.parameters[0]:`

# %% MyEarlyBucket: launches at the last of its parameters
# Not yet. In step 1, rank 0 launched the bucket of the first layer before all of its gradients were complete, expected
# a launch of the full bucket.
# solution, with `if self.missing == 0:` as `if parameter is self.parameters[-1]:`

# %% MyEarlyBucket: launches in finish
# Not yet. In step 1, rank 0 did not launch the bucket of the last layers, expected one launch in every step.
# solution, with `self.launch()` as `pass` and `super().finish()` as `self.launch(); super().finish()`

# %% MyEarlyBucket
# Not yet. After `finish` in step 1, on rank 0 the gradients are ... times the mean over all ranks.
# solution, with `self.take(parameter)` as `self.parts[parameter].copy_(parameter.grad.flatten())`

# %% MyEarlyBucket: does not take
# Not yet. After `finish` in step 1, on rank 0 the gradient ... the mean over all ranks.
# solution, with `self.take(parameter)` as `pass`

# %% MyEarlyBucket: waits in the hook
# Not yet. In step 1, rank 0 waited for a bucket before the backward pass had ended, expected a wait in `finish` only.
# solution, with `self.launch()` as `self.launch(); self.work.wait()`

# %% MyEarlyBucket: launches at the end of the backward pass
# Not yet. In step 1, rank 0 launched the bucket of the last layers too late, expected a launch as soon as the bucket is
# full.
# solution, with `self.launch()` as `torch.autograd.Variable._execution_engine.queue_callback(self.launch)`

# %% MyEarlyBucket: one count for all buckets
# Not yet. In step 1, rank 0 did not launch the bucket of the first layer, expected one launch in every step.
# solution, with `self.missing` as `type(self).missing`

# %% MyEarlyBucket: without super().finish()
# Not yet. After `finish` in step 1, on rank 0 ...
# solution, with `super().finish()` as `pass`

# %% MyEarlyBucket
# Not yet. Rank 0 raised NameError: name 'nothing' is not defined
# solution, with `self.take(parameter)` as `nothing`

# %% MyEarlyBucket: with the set of the lesson
# Solved. ...
# cell `class EarlyBucketOfTheLesson`, with `EarlyBucketOfTheLesson` as `MyEarlyBucket`

# %% MyEarlyBucket: takes all at once
# Solved. ...
class MyEarlyBucket(Bucket):
    def __init__(self, parameters):
        super().__init__(parameters)
        self.complete = []
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self.ready)

    def ready(self, parameter):
        self.complete.append(parameter)
        if len(self.complete) == len(self.parameters):
            for each in self.complete:
                self.take(each)
            self.complete.clear()
            self.launch()

# %% MyEarlyBucket: waits for futures
# Solved. ...
class MyEarlyBucket(EarlyBucketOfTheLesson):
    def launch(self):
        self.future = dist.all_reduce(self.flat, async_op=True).get_future()

    def finish(self):
        self.future.wait()
        for parameter, part in self.parts.items():
            parameter.grad = part.view_as(parameter)
        self.waiting = set(self.parameters)

# %% World(5): MyEarlyBucket, buckets_by_size, two_buckets, exposed_seconds
