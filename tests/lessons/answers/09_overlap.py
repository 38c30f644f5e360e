# %% World(4)
# cell `init_process_group(`
# cell `def sgd(`
# cell `class Bucket`
# cell `def one_bucket(`
# cell `def buckets_by_layer(`
# cell `def hooks_of_the_lesson(`
when_full = hooks_of_the_lesson
# cell `def overlapped(`, up to `as_one_process(`

# %% my_hooks: solution
# Solved. In each step, every rank launched each bucket once, as soon as all gradients were in the bucket.

# %% my_hooks: skeleton
# Not yet. In step 1, rank 0 did not launch the bucket of the last layers, expected one launch in every step.

# %% my_hooks: takes all at once
# Solved. ...
def my_hooks(bucket, launch):
    taken = []

    def hook(parameter):
        taken.append(parameter)
        len(taken) == len(bucket.views) and ([bucket.take(p) for p in taken], taken.clear(), launch(bucket))

    for parameter in bucket.views:
        parameter.register_post_accumulate_grad_hook(hook)

# %% my_hooks: counts what it has taken
# Solved. ...
def my_hooks(bucket, launch):
    taken = []

    def hook(parameter):
        bucket.take(parameter)
        taken.append(parameter)
        len(taken) % len(bucket.views) == 0 and launch(bucket)

    for parameter in bucket.views:
        parameter.register_post_accumulate_grad_hook(hook)

# %% my_hooks
# Not yet. In step 2, rank 0 did not launch the bucket of the last layers, expected one launch in every step.
# answer "counts what it has taken", with `len(taken) % len(bucket.views) == 0` as `len(taken) == len(bucket.views)`

# %% my_hooks
# Not yet. In step 1, rank 0 launched the bucket of the last layers 4 times, expected one launch in every step.
# answer "takes all at once", with `taken.append(parameter)` as `bucket.take(parameter)`
# and `len(taken) == len(bucket.views) and ([bucket.take(p) for p in taken], taken.clear(), launch(bucket))`
# as `launch(bucket)`

# %% my_hooks
# Not yet. In step 1, rank 0 launched the bucket of the last layers before all of its gradients were taken, expected a
# full bucket.
# answer "counts what it has taken", with `0 and launch` as `1 and launch`

# %% my_hooks
# Not yet. In step 1, rank 0 launched the bucket of the last layers before all of its gradients were taken, expected a
# full bucket.
# answer "counts what it has taken", without `bucket.take(parameter)`

# %% my_hooks
# Not yet. Rank 0 raised TypeError: launch got a Parameter, expected the bucket of `my_hooks`
# answer "counts what it has taken", with `launch(bucket)` as `launch(parameter)`

# %% my_hooks
# Not yet. Rank 0 raised NameError: name 'nothing' is not defined
def my_hooks(bucket, launch):
    taken = []

    def hook(parameter):
        nothing

    for parameter in bucket.views:
        parameter.register_post_accumulate_grad_hook(hook)

# %% my_hooks: of two buckets that share what was taken
# Not yet. In step 1, rank 0 did not launch the bucket of the first layer, expected one launch in every step.
# skeleton, with `def my_hooks(bucket, launch):` as `def my_hooks(bucket, launch, taken=[]):`
# and `bucket.take(parameter)` as `bucket.take(parameter); taken.append(parameter); len(taken) == 4 and launch(bucket)`

# %% my_hooks: that launch at the end of backward
# Not yet. In step 1, rank 0 launched the bucket of the last layers after backward had computed the gradients of the
# first layer, expected a launch as soon as the bucket is full.
def my_hooks(bucket, launch):
    taken = []

    def hook(parameter):
        bucket.take(parameter)
        taken.append(parameter)
        len(taken) % len(bucket.views) == 0 and torch.autograd.Variable._execution_engine.queue_callback(
            lambda: launch(bucket)
        )

    for parameter in bucket.views:
        parameter.register_post_accumulate_grad_hook(hook)

# %% buckets_by_size: solution
# Solved. Every rank has filled its buckets as DDP does, from the last parameter to the first.

# %% buckets_by_size: skeleton
# Not yet. Bucket 0 of rank 0 ends with 16 bytes, before it has reached the limit of 1200.

# %% buckets_by_size
# Solved. ...
# solution, with `buckets = []` as `buckets, size = [[]], 0`,
# without `size = limit  # of the bucket that is being filled: at first there is none`

# %% buckets_by_size
# Not yet. Bucket 0 of rank 0 goes on after it has reached 2384 bytes, and the limit is 1200.
# solution, with `buckets = []` as `buckets, size = [[]], 0`,
# without `size = limit  # of the bucket that is being filled: at first there is none`,
# with `size += parameter.nbytes` as `size += parameter.numel()`

# %% buckets_by_size: from the first parameter on
# Not yet. The buckets of rank 0 hold the parameters [[0, 1, 2], [3, 4, 5, 6, 7, 8]], expected from last to first.
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
# Not yet. Bucket 0 of rank 0 is empty.
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

# %% buckets_by_size: looking back
# Solved. ...
def buckets_by_size(parameters, limit):
    buckets = [[]]
    for parameter in reversed(parameters):
        if sum(p.nbytes for p in buckets[-1]) >= limit:
            buckets.append([])
        buckets[-1].append(parameter)
    return buckets

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
# answer "looking back",
# with `sum(p.nbytes for p in buckets[-1]) >=` as `buckets[-1] and sum(p.nbytes for p in [*buckets[-1], parameter]) >`

# %% two_buckets: solution
# Solved. Every rank has the weights of one process, and its first bucket travelled while backward still ran.

# %% two_buckets: skeleton
# Not yet. Rank 0 called all_reduce once in a step, expected twice.

# %% two_buckets: split after three
# Solved. ...
def two_buckets(model, group=None):
    optimizer, parameters = sgd(model.parameters()), list(model.parameters())[::-1]
    buckets = [Bucket(parameters[:3], group), Bucket(parameters[3:], group)]
    for bucket in buckets:
        when_full(bucket, Bucket.launch)

    def update():
        for bucket in buckets:
            bucket.finish()
        optimizer.step()

    return model, update

# %% two_buckets: waits for futures
# Solved. ...
# answer "split after three",
# with `bucket.finish()` as `bucket.work.get_future().wait(); [setattr(p, "grad", v) for p, v in bucket.views.items()]`

# %% two_buckets
# Not yet. Rank 0 launched its first bucket after backward had computed the last gradient.
def two_buckets(model, group=None):
    optimizer, parameters = sgd(model.parameters()), list(model.parameters())[::-1]
    buckets = [Bucket(parameters[:3], group), Bucket(parameters[3:], group)]
    for bucket in buckets:
        pass

    def update():
        for bucket in buckets:
            [bucket.take(p) for p in bucket.views]
            bucket.launch()
            bucket.finish()
        optimizer.step()

    return model, update

# %% two_buckets
# Not yet. Rank 0 waited for a bucket before backward had ended.
def two_buckets(model, group=None):
    optimizer, parameters = sgd(model.parameters()), list(model.parameters())[::-1]
    buckets = [Bucket(parameters[:3], group), Bucket(parameters[3:], group)]
    for bucket in buckets:
        when_full(bucket, lambda bucket: (bucket.launch(), bucket.finish()))

    def update():
        for bucket in buckets:
            pass
        optimizer.step()

    return model, update

# %% two_buckets
# Not yet. After step 0, the weights of rank 0 are not those of one process.
# answer "split after three", with `bucket.finish()` as `bucket.work.wait()`

# %% two_buckets
# Not yet. Rank 0 waited for only one of its buckets. Call world.restart(), then run the lesson again, from its setup
# cell to this check.
# answer "split after three",
# with `bucket.finish()` as `bucket.work.wait() if bucket is buckets[0] else __import__("time").sleep(0.1)`

# %% two_buckets
# Not yet. Rank 0 returned a function, expected a model and a function.
# answer "split after three", with `return model, update` as `return update`

# %% two_buckets
# Not yet. Rank 0 raised NameError: name 'nothing' is not defined
# answer "split after three", with `return model, update` as `return model, nothing`

# %% two_buckets: by ddp
# Solved. ...
def two_buckets(model, group=None):
    model = DDP(model, process_group=group, bucket_cap_mb=0.000476837158203125)
    return model, sgd(model.parameters()).step

# %% two_buckets
# Not yet. Rank 0 called all_reduce once in a step, expected twice.
def two_buckets(model, group=None):
    model = DDP(model, process_group=group, bucket_cap_mb=25)
    return model, sgd(model.parameters()).step

# %% two_buckets
# Not yet. Rank 0 called all_reduce 3 times in a step, expected twice.
def two_buckets(model, group=None):
    model = DDP(model, process_group=group, bucket_cap_mb=9.5367431640625e-05)
    return model, sgd(model.parameters()).step

# %% two_buckets: with one for each layer
# Not yet. Rank 0 called all_reduce 3 times in a step, expected twice.
# skeleton, with `return one_bucket(model, group)` as `return overlapped(model, group)`

# %% two_buckets: that leave a gradient out
# Not yet. The buckets of rank 0 hold 704 bytes, and the gradients 992.
# answer "split after three", with `[3:], group` as `[4:], group`

# %% two_buckets: that do not count anew
# Not yet. Rank 0 did not call all_reduce in a step, expected twice.
# solution, with `missing[:] = [len(half) for half in halves]` as `_ = [len(half) for half in halves]`

# %% World(5): my_hooks, buckets_by_size, two_buckets
