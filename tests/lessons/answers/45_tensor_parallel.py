# %% World(4)
# cell `init_process_group(` of solutions
from torch import nn

# %% my_columns: skeleton
# Not yet. The weight of my_columns on rank 0 has 48 of 48 elements, expected 12.

# %% my_columns: solution
# Solved. Each rank keeps 1/4 of both layers, and the partial sums add up to the output.

# %% my_columns
# Solved. ...
# solution, with `n, dim=0` as `n`
# and `return layer.weight.chunk(n, dim=1)[rank]` as `return layer.weight.chunk(n, 1)[rank]`

# %% my_columns: every n-th output
# Not yet. The partial sums add up to the output. Rank 0 does not keep a block of consecutive outputs, expected outputs
# 0 to 2 of the first layer. In attention such a block holds whole heads: try `chunk`.
# skeleton, with `return layer.weight, layer.bias  # your line` as `return layer.weight[rank::n], layer.bias[rank::n]`
# and `return layer.weight  # your line` as `return layer.weight[:, rank::n]`

# %% my_columns
# Solved. ...
# solution, with `layer.weight.chunk(n, dim=0)[rank]` as `layer.weight.detach().tensor_split(n)[rank].clone()`
# and `return layer.weight.chunk(n, dim=1)[rank]` as `return layer.weight.chunk(n, 1)[rank]`

# %% my_columns
# Solved. ...
# solution, with `n, dim=0` as `n`
# and `return layer.weight.chunk(n, dim=1)[rank]` as `return layer.weight.T.chunk(n)[rank].T`

# %% my_columns
# Not yet. ... has the shape [4, 3], expected [3, 4]. ...
# solution, with `layer.weight.chunk(n, dim=0)` as `layer.weight.T.chunk(n, 1)`
# and `return layer.weight.chunk(n, dim=1)[rank]` as `return layer.weight.chunk(n, 1)[rank]`

# %% my_columns
# Not yet. The bias of my_columns on rank 0 has 12 of 12 elements, expected 3.
# skeleton, with `return layer.weight, layer.bias  # your line` as `return layer.weight.chunk(n)[rank], layer.bias`
# and `return layer.weight  # your line` as `return layer.weight.chunk(n, 1)[rank]`

# %% my_columns
# Not yet. The weight of my_rows on rank 0 has 96 of 96 elements, expected 24.
# solution, with `n, dim=0` as `n` and `return layer.weight.chunk(n, dim=1)[rank]` as `return layer.weight`

# %% my_columns
# Not yet. ... a rank's rows of the second layer must fit its columns ...
# solution, with `n, dim=0` as `n` and `return layer.weight.chunk(n, dim=1)[rank]` as `return layer.weight[:, rank::n]`

# %% my_columns
# Not yet. ... the partial sums of the ranks do not add up to the output ...
# solution, with `n, dim=0` as `n`
# and `return layer.weight.chunk(n, dim=1)[rank]` as `return layer.weight.chunk(n, 1)[0]`

# %% my_columns
# Not yet. The bias of my_columns on rank 0 has 0 of 12 elements, expected 3.
# skeleton, with `return layer.weight, layer.bias  # your line` as `return layer.weight.chunk(n)[rank], layer.bias[:0]`
# and `return layer.weight  # your line` as `return layer.weight.chunk(n, 1)[rank]`

# %% my_columns: the dimensions exchanged
# Not yet. The weight of my_columns on rank 0 has the shape [12, 1], expected [3, 4]. A weight is stored as ...
# solution, with `layer.weight.chunk(n, dim=0)` as `layer.weight.chunk(n, 1)`
# and `return layer.weight.chunk(n, dim=1)[rank]` as `return layer.weight.chunk(n)[rank]`

# %% my_columns: rows of outputs
# Not yet. The weight of my_rows on rank 0 has the shape [2, 12], expected [8, 3]. A weight is stored as ...
# solution, with `n, dim=0` as `n` and `return layer.weight.chunk(n, dim=1)[rank]` as `return layer.weight.chunk(n)[rank]`

# %% my_columns: changes the layer
# Solved. ...
def my_columns(layer):
    layer.weight.data = layer.weight.data.chunk(n)[rank]
    layer.bias.data = layer.bias.data.chunk(n)[rank]
    return layer.weight, layer.bias

def my_rows(layer):
    layer.weight.data = layer.weight.data.chunk(n, 1)[rank]
    return layer.weight

# %% my_columns: a bias for the rows, too
# Not yet. The weight of my_rows on rank 0 is a list of 2, expected a tensor.
# solution, with `return layer.weight.chunk(n, dim=1)[rank]` as `return layer.weight.chunk(n, dim=1)[rank], layer.bias`

# %% my_columns: the bias of rank 0
# Not yet. ... the partial sums of the ranks do not add up to the output ...
# solution, with `layer.bias.chunk(n)[rank]` as `layer.bias.chunk(n)[0]`

# %% MyF: skeleton
# Not yet. Rank 0 returned only its own partial sum of the output, expected the sum of all partial sums.

# %% MyF: solution
# Solved. The output and the gradients of x and of both weights are those of one process.

# %% MyF: with two functions
# Solved. ...
class MyF(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        total = gradient.clone()
        dist.all_reduce(total)
        return total

class MyG(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        total = x.contiguous()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context, gradient):
        return gradient

def my_mlp(x, up, down):
    return MyG.apply(F.linear(F.gelu(F.linear(MyF.apply(x), up)), down))

# %% MyF
# Solved. ...
# answer "with two functions", with `return x.view_as(x)` as `return x.clone()`
# and `total = x.contiguous()` as `total = x.clone()`

# %% MyF
# Solved. ...
class MyF(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        parts = [torch.empty_like(gradient) for _ in range(n)]
        dist.all_gather(parts, gradient)
        return sum(parts)

class MyG(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context, gradient):
        return gradient

def my_mlp(x, up, down):
    return MyG.apply(F.linear(F.gelu(F.linear(MyF.apply(x), up)), down))

# %% MyF: by a hook
# Not yet. The output and the gradients are right, but `my_mlp` does the work of `MyF` or `MyG` itself, expected it to call
# both: the lesson goes on with them.
# skeleton
def my_mlp(x, up, down):
    x = x.view_as(x)
    x.register_hook(summed)
    share = F.linear(F.gelu(F.linear(x, up)), down)
    return share + (summed(share.detach()) - share.detach())

def summed(x):
    total = x.clone()
    dist.all_reduce(total)
    return total

# %% MyF
# Not yet. ... Rank 0 got 4 times the gradient of down, expected the gradient of one process. ...
class MyF(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        total = gradient.clone()
        dist.all_reduce(total)
        return total

class MyG(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context, gradient):
        total = gradient.clone()
        dist.all_reduce(total)
        return total

def my_mlp(x, up, down):
    return MyG.apply(F.linear(F.gelu(F.linear(MyF.apply(x), up)), down))

# %% MyF
# Not yet. ... Rank 0 got only the part of the gradient of x that comes through its own columns ...
# solution
def my_mlp(x, up, down):
    return MyG.apply(F.linear(F.gelu(F.linear(x, up)), down))

# %% MyF: does not wait
# Not yet. Rank ... returned ..., expected the sum of all partial sums.
# answer "with two functions", with `total = x.contiguous()` as `total = x.clone()`
# and `dist.all_reduce(total)` as `dist.all_reduce(total, async_op=True)`

# %% MyF: only rank 0 has the sum
# Not yet. Rank 1 returned another output, expected the sum of all partial sums.
# answer "with two functions", with `total = x.contiguous()` as `total = x.clone()`
# and `dist.all_reduce(total)` as `dist.reduce(total, 0)`

# %% MyF
# Not yet. ... returned only its own partial sum of the output ...
# solution
def my_mlp(x, up, down):
    return F.linear(F.gelu(F.linear(MyF.apply(x), up)), down)

# %% MyF
# Not yet. ... Rank 0 got 0.25 times the gradient of down, ...
# solution, with `return gradient` as `return gradient / n`
def my_mlp(x, up, down):
    return MyG.apply(F.linear(F.gelu(F.linear(MyF.apply(x), up)), down))

# %% MyF
# Not yet. ... Rank 0 got no gradient of down, ...
# solution
def my_mlp(x, up, down):
    return all_reduced(F.linear(F.gelu(F.linear(MyF.apply(x), up)), down))

def all_reduced(x):
    total = x.detach().clone()
    dist.all_reduce(total)
    return total

# %% MyF
# Not yet. Rank 0 returned None, expected a tensor ...
# solution
def my_mlp(x, up, down):
    MyG.apply(F.linear(F.gelu(F.linear(MyF.apply(x), up)), down))

# %% my_cross_entropy: skeleton
# Not yet. The loss and its gradient are right. Rank 0 passed 84 values to its collectives for 12 tokens, expected at
# most 36.

# %% my_cross_entropy: solution
# Solved. Every rank has the loss and the gradient of one process, for three values per token.
# solution of MyG
# solution

# %% my_cross_entropy: three sums
# Solved. ...
# solution of MyG

def my_cross_entropy(logits, targets):
    words = logits.shape[-1]
    mine = targets // words == rank
    largest = largest_of_all(logits.amax(-1))
    logits = logits - largest.unsqueeze(-1)
    of_target = logits.gather(-1, (targets % words).unsqueeze(-1)).squeeze(-1)
    total = MyG.apply(logits.exp().sum(-1))
    return (total.log() - MyG.apply(of_target * mine)).mean()

# %% my_cross_entropy: the largest logit of this rank
# Not yet. Rank 0 returned ..., expected ..., the mean over all tokens, with 7 words on each rank.
# answer "three sums", with `largest_of_all(logits.amax(-1))` as `logits.detach().amax(-1)`

# %% my_cross_entropy: nothing is subtracted
# Not yet. Rank 0 returned ..., expected ... Subtract the largest logit of all words before `exp`.
# answer "three sums", with `logits - largest.unsqueeze(-1)` as `logits + 0`

# %% my_cross_entropy: the logit of the target of every rank
# Not yet. Rank 0 returned ..., expected ..., the mean over all tokens, with 7 words on each rank.
# answer "three sums", with `of_target * mine` as `of_target`

# %% my_cross_entropy: sums without a gradient
# Not yet. The loss is right. Rank 0 got another gradient of its logits, expected ...
# answer "three sums", with `MyG.apply(logits.exp().sum(-1))` as `summed(logits.exp().sum(-1))`
def summed(x):
    total = x.detach().clone()
    dist.all_reduce(total)
    return total

# %% my_cross_entropy: the sum instead of the mean
# Not yet. Rank 0 returned ..., expected ..., the mean over all tokens, with 7 words on each rank.
# answer "three sums", with `.mean()` as `.sum()`

# %% my_cross_entropy: changes the logits
# Solved. ...
# answer "three sums", with `logits = logits - largest.unsqueeze(-1)` as `logits -= largest.unsqueeze(-1)`

# %% my_cross_entropy: the words of the lesson
# Not yet. Rank 0 returned ..., expected ..., the mean over all tokens, with 7 words on each rank.
# answer "three sums", with `mine = targets // words == rank` as `mine = targets // 16 == rank`

# %% my_cross_entropy: two values for each token
# Solved. ...
# solution of MyG

def my_cross_entropy(logits, targets):
    own = logits.logsumexp(-1)
    of_ranks = [torch.empty_like(own) for _ in range(n)]
    dist.all_gather(of_ranks, own.detach())
    of_ranks[rank] = own
    words = logits.shape[-1]
    of_target = logits.gather(-1, (targets % words).unsqueeze(-1)).squeeze(-1) * (targets // words == rank)
    return (torch.stack(of_ranks).logsumexp(0) - MyG.apply(of_target)).mean()

# %% my_cross_entropy: a loss for each token
# Not yet. Rank 0 returned ..., expected the mean loss, a tensor with one element.
# answer "three sums", with `.mean()` as ``

# %% cut_qkv: skeleton
# Not yet. Rank 0 keeps 12 rows of the queries, 0 of the keys and 0 of the values, expected 4 of each, the
# rows of its heads.

# %% cut_qkv: solution
# Solved. Each rank has the queries, the keys and the values of its own heads.

# %% cut_qkv
# Solved. ...
def rows(layer):
    numbers = torch.arange(len(layer.bias))
    each = len(numbers) // 3 // n
    return numbers[numbers // each % n == rank]

def cut_qkv(layer):
    return torch.cat([part.chunk(n)[rank] for part in layer.weight.chunk(3)]), torch.cat(
        [part.chunk(n)[rank] for part in layer.bias.chunk(3)]
    )

# %% cut_qkv
# Solved. ...
def rows(layer):
    numbers = torch.arange(len(layer.bias))
    each = len(numbers) // 3 // n
    return numbers[numbers // each % n == rank]

def cut_qkv(layer):
    return layer.weight.unflatten(0, (3, n, -1))[:, rank].flatten(0, 1), layer.bias.unflatten(0, (3, n, -1))[
        :, rank
    ].flatten()

# %% cut_qkv
# Solved. ...
def rows(layer):
    numbers = torch.arange(len(layer.bias))
    each = len(numbers) // 3 // n
    return numbers[numbers // each % n == rank]

def cut_qkv(layer):
    return layer.weight[rows(layer)].detach(), layer.bias[rows(layer)].detach()

# %% cut_qkv
# Not yet. Rank 0 keeps 16 rows of the queries, 16 of the keys and 16 of the values, expected 4 ...
# skeleton, with `return layer.weight.chunk(n)[rank], layer.bias.chunk(n)[rank]` as `return layer.weight, layer.bias`

# %% cut_qkv
# Not yet. Rank 0 keeps row 4, which belongs to the heads of rank 1, expected ...
def cut_qkv(layer):
    return layer.weight[rank::n], layer.bias[rank::n]

# %% cut_qkv
# Not yet. The weight is right. Rank 0 keeps the biases [0, 1, 2 ...
# skeleton, with `layer.weight.chunk(n)[rank]` as `torch.cat([part.chunk(n)[rank] for part in layer.weight.chunk(3)])`

# %% cut_qkv
# Not yet. The weight is right. Rank 0 keeps the biases ...
def cut_qkv(layer):
    return torch.cat([part.chunk(n)[rank] for part in layer.weight.chunk(3)]), layer.bias

# %% cut_qkv
# Not yet. Rank 0 keeps the right rows in the order [35, 34 ...
def cut_qkv(layer):
    return torch.cat([part.chunk(n)[rank] for part in layer.weight.chunk(3)]).flip(0), torch.cat(
        [part.chunk(n)[rank] for part in layer.bias.chunk(3)]
    )

# %% cut_qkv
# Not yet. ... keeps 16 rows of the queries ...
# skeleton, with `layer.weight.chunk(n)[rank], layer.bias.chunk(n)[rank]` as `layer.weight.chunk(n, 1)[0], layer.bias`

# %% cut_qkv: one input
# Not yet. Rank 0 keeps the right rows, but returned a weight of shape [12, 1], expected [12, 2]: the heads split ...
# solution, with `return weight, bias` as `return weight[:, :1], bias`

# %% cut_qkv: three blocks in a row
# Not yet. Rank 0 keeps 12 rows of the queries, 0 of the keys and 0 of the values, expected 4 of each, ...
def cut_qkv(layer):
    weights, biases = layer.weight.chunk(3 * n), layer.bias.chunk(3 * n)
    return torch.cat(weights[3 * rank : 3 * rank + 3]), torch.cat(biases[3 * rank : 3 * rank + 3])

# %% next_words: skeleton
# Not yet. Rank 0 returned word ... , the best of all words.

# %% next_words: by the best word
# Solved. Every rank knows the best words, and no rank passed more than three values per token.
def next_words(logits):
    mine, word = logits.max(-1)
    best = mine.clone()
    dist.all_reduce(best, op=dist.ReduceOp.MAX)
    word = torch.where(mine == best, word + rank * logits.shape[1], -1)
    dist.all_reduce(word, op=dist.ReduceOp.MAX)
    return word

# %% next_words
# Solved. Every rank knows the best words, and no rank passed more than three values per token.
# answer "by the best word", with `[1], -1` as `[1], 0`
# and `dist.all_reduce(word, op=dist.ReduceOp.MAX)` as `dist.all_reduce(word)`

# %% next_words
# Solved. Every rank knows the best words, and no rank passed more than three values per token.
def next_words(logits):
    mine, word = logits.max(-1)
    pair = torch.stack([mine, (word + rank * logits.shape[1]).double()])
    pairs = [torch.empty_like(pair) for _ in range(n)] if rank == 0 else None
    dist.gather(pair, pairs)
    result = torch.zeros(len(logits), dtype=torch.long)
    if rank == 0:
        best, words = torch.stack(pairs, dim=1)
        result = words.long()[best.argmax(0), torch.arange(len(logits))]
    dist.broadcast(result, 0)
    return result

# %% next_words: solution
# Solved. Every rank knows the best words, and no rank passed more than three values per token.

# %% next_words
# Not yet. The words are right. Rank 0 passed 42 values to its collectives for 6 tokens ...
def next_words(logits):
    parts = [torch.empty_like(logits) for _ in range(n)]
    dist.all_gather(parts, logits)
    return torch.cat(parts, dim=1).argmax(-1)

# %% next_words
# Not yet. ... , the best of all words.
# answer "by the best word", with `word + rank * logits.shape[1]` as `word`

# %% next_words
# Not yet. ... returned word ...
# answer "by the best word",
# with `dist.all_reduce(best, op=dist.ReduceOp.MAX)` as `dist.all_reduce(best, op=dist.ReduceOp.MIN)`

# %% next_words
# Not yet. Rank 1 returned word -1 ...
# answer "by the best word", with `return word` as `return word if rank == 0 else mine`

# %% next_words
# Not yet. ... , expected a tensor of 6 elements.
# answer "by the best word", with `return word` as `return word[0]`

# %% next_words: ids as floats
# Not yet. The words are right. Rank 0 returned a tensor of torch.float64, expected a tensor of integers.
# solution, with `.squeeze(0).long()` as `.squeeze(0)`

# %% World(2), World(5): my_columns, MyF, cut_qkv, next_words
