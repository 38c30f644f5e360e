# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(` of solutions, with `seconds=10` as `seconds=4`
# cell `class MyExchange` of solutions
# cell `Exchange = MyExchange` of solutions
# cell `def my_dispatch` of solutions
# cell `def my_combine` of solutions
# cell `dispatch, combine =` of solutions

# %% MyExchange: solution
# Solved. Every rank has received its rows, and the gradient of each row is back on the rank that sent the row.

# %% MyExchange: the lesson's own
# Solved. ...
# cell `class ExchangeOfTheLesson`, with `ExchangeOfTheLesson` as `MyExchange`

# %% MyExchange: skeleton
# Not yet. The rows are right. With equal totals, on rank 0 the gradient of the input is [0.0, 0.0, ...],
# expected [...], from the losses of the ranks that received the rows.

# %% MyExchange: without a gradient
# Not yet. The rows are right. With equal totals, no gradient reaches the input on rank 0.
# solution, with `return exchange(gradient, received, sent), None, None` as `return None, None, None`

# %% MyExchange: the mean
# Not yet. The rows are right. With equal totals, on rank 0 the gradient of the input is [...], expected [...], ...
# solution, with `exchange(gradient, received, sent)` as `exchange(gradient, received, sent) / n`

# %% MyExchange: changes the gradient
# Not yet. With equal totals, `backward` changed its argument on rank 0, expected it unchanged.
# solution, with `return exchange(gradient, received, sent), None, None`
# as `back = exchange(gradient, received, sent); gradient.zero_(); return back, None, None`

# %% MyExchange: the gradient of what arrived
# Not yet. ... returned an invalid gradient at index 0 ...
# solution, with `return exchange(gradient, received, sent), None, None` as `return gradient, None, None`

# %% MyExchange: the split sizes of the forward pass
# Not yet. The rows are right. With equal totals, on rank 0 the gradient of the input is [...],
# expected [...], from the losses of the ranks that received the rows.
# solution, with `exchange(gradient, received, sent)` as `exchange(gradient, sent, received)`

# %% my_dispatch: solution
# Solved. Each token is on the rank of its expert, and its gradient on the rank of the token.

# %% my_dispatch: the lesson's own
# Solved. ...
# cell `def dispatch_of_the_lesson`, with `dispatch_of_the_lesson` as `my_dispatch`

# %% my_dispatch: counts by an all_gather
# Solved. ...
def my_dispatch(tokens, expert_of_token):
    order = torch.cat([(expert_of_token == expert).nonzero().flatten() for expert in range(n)])
    sent = torch.bincount(expert_of_token, minlength=n)
    of_all = [torch.empty_like(sent) for _ in range(n)]
    dist.all_gather(of_all, sent)
    sent, received = sent.tolist(), [counts[rank].item() for counts in of_all]
    return Exchange.apply(tokens[order], sent, received), [order, sent, received]

# %% my_dispatch: skeleton
# Not yet. With mixed tokens, rank 0 received a tensor of shape [5, 2], expected the 7 tokens of expert 0, a tensor of
# shape [7, 2].

# %% my_dispatch: not sorted
# Not yet. With mixed tokens, rank 0 received [...], expected the tokens of expert 0: [...], first those of rank 0.
# solution, with `Exchange.apply(tokens[order]` as `Exchange.apply(tokens`

# %% my_dispatch: without a gradient
# Not yet. Rows and plan are right. With mixed tokens, no gradient reaches the input on rank 0.
# solution, with `Exchange.apply(` as `exchange(`

# %% my_dispatch: another order in the plan
# Not yet. The rows are right. With mixed tokens, `order` of the plan is [0, 3, 1, 4, 2] on rank 0, expected the places of
# its tokens in the order in which it sent them.
# solution, with `expert_of_token.argsort()` as `expert_of_token.argsort(stable=True)`
# and `(order, sent, received)` as `(order.argsort(), sent, received)`

# %% my_dispatch: the lists swapped in the plan
# Not yet. The rows are right. With mixed tokens, `sent` of the plan is [3, 0, 0, 4] on rank 0,
# expected the list [3, 2, 0, 0].
# solution, with `(order, sent, received)` as `(order, received, sent)`

# %% my_dispatch: tensors in the plan
# Not yet. The rows are right. With mixed tokens, `sent` of the plan is tensor...
# solution, with `(order, sent, received)` as `(order, torch.tensor(sent), torch.tensor(received))`

# %% my_dispatch: tensors as split sizes
# Not yet. Rank 0 raised TypeError: all_to_all_single(): incompatible function arguments. Split sizes are lists of
# integers: try `tolist`.
# solution, with `sent, received = sent.tolist(), received.tolist()` as `pass`

# %% my_dispatch: without a plan
# Not yet. The rows are right. With mixed tokens, rank 0 returned the plan None, expected (order, sent, received), ...
# solution, with `, (order, sent, received)` as ``

# %% my_dispatch: the counts one by one
# Not yet. Rows, plan and gradients are right. Rank 0 called 5 all_to_all, expected at most two collectives, and an
# all_to_all for the rows.
# solution, with `dist.all_to_all_single(received, sent)`
# as `for _ in range(n): dist.all_to_all_single(received, sent)`

# %% my_dispatch: counts only up to its last expert
# Not yet. Rank 0 raised RuntimeError: ... The first collective got 3 counts, expected 4, one for each expert. If you
# count with `torch.bincount`, give it `minlength`. Run the lesson again, from the cell with `World` to this check.
# cell `def dispatch_of_the_lesson`, with `dispatch_of_the_lesson` as `my_dispatch` and `, minlength=n` as ``

# %% my_dispatch: as many rows as it sends
# Not yet. ...
# cell `def dispatch_of_the_lesson`, with `dispatch_of_the_lesson` as `my_dispatch`
# and `dist.all_to_all_single(received, sent)` as `received.copy_(sent)`

# %% my_combine: solution
# Solved. Every output is in the place of its token, and gradients reach the experts.

# %% my_combine: the lesson's own
# Solved. ...
def my_combine(outputs, plan):
    order, sent, received = plan
    rows = Exchange.apply(outputs, received, sent)
    return rows[order.argsort()]

# %% my_combine: skeleton
# Not yet. With mixed tokens, rank 0 returned a tensor of shape [7, 2], expected an output for each of its 5 tokens, a
# tensor of shape [5, 2].

# %% my_combine: in the order of the experts
# Not yet. With mixed tokens, rank 0 returned [...], expected [101.5, 102.5, 103.5, ...], in the order of the tokens.
# solution, with `torch.zeros_like(rows).index_copy(0, order, rows)` as `rows`

# %% my_combine: sorted once more
# Not yet. With mixed tokens, rank 0 returned [...], expected [101.5, 102.5, 103.5, ...], in the order of the tokens.
# solution, with `torch.zeros_like(rows).index_copy(0, order, rows)` as `rows[order]`

# %% my_combine: without a gradient
# Not yet. The outputs are right. With mixed tokens, no gradient reaches the input on rank 0.
# solution, with `Exchange.apply(` as `exchange(`

# %% my_combine: with a barrier
# Not yet. Outputs and gradients are right. Rank 0 called 1 all_to_all, 1 barrier, expected 1 all_to_all.
# solution, with `order, sent, received = plan` as `order, sent, received = plan; dist.barrier()`

# %% two_experts: solution
# Solved. Every token passed through its expert, and every expert computed only its own tokens.

# %% two_experts: the numbers in a column
# Solved. ...
def two_experts(tokens, expert_of_token, apply):
    labelled = torch.cat([tokens, expert_of_token.unsqueeze(1)], dim=1)
    rows, plan = dispatch(labelled, expert_of_token // 2)
    rows, is_first = rows[:, :-1], rows[:, -1] == 2 * rank
    outputs = torch.zeros_like(rows)
    outputs[is_first] = apply(2 * rank, rows[is_first])
    outputs[~is_first] = apply(2 * rank + 1, rows[~is_first])
    return combine(outputs, plan)

# %% two_experts: skeleton
# Not yet. With mixed tokens, rank 0 returned [...], expected [...]. Expert e multiplies its rows by e + 1.

# %% two_experts: both experts for all rows
# Not yet. Outputs and gradients are right. With mixed tokens, expert 0 computed ... rows, expected ...
def two_experts(tokens, expert_of_token, apply):
    rows, plan = dispatch(tokens, expert_of_token // 2)
    expert_of_row, _ = dispatch(expert_of_token, expert_of_token // 2)
    is_first = (expert_of_row == 2 * rank).unsqueeze(1)
    return combine(torch.where(is_first, apply(2 * rank, rows), apply(2 * rank + 1, rows)), plan)

# %% two_experts: without a gradient
# Not yet. The outputs are right. With mixed tokens, no gradient reaches the input on rank 0.
# solution, with `apply(expert, rows[places])` as `apply(expert, rows[places]).detach()`

# %% two_experts: no graph on a rank without rows
# Not yet. The outputs are right. With all tokens for the last expert, no gradient reaches the input on rank 0, and the
# other ranks would wait for it in the backward pass. A rank that received no row also needs outputs with a graph.
def two_experts(tokens, expert_of_token, apply):
    marked = torch.cat([tokens, expert_of_token.unsqueeze(1)], dim=1)
    rows, plan = dispatch(marked, expert_of_token // 2)
    rows, numbers = rows[:, :-1], rows[:, -1]
    outputs = torch.zeros_like(rows)
    for expert in numbers.unique().long().tolist():
        outputs[numbers == expert] = apply(expert, rows[numbers == expert])
    return combine(outputs, plan)

# %% two_experts: filled in place
# Solved. ...
# answer "no graph on a rank without rows", with `numbers.unique().long().tolist()` as `(2 * rank, 2 * rank + 1)`

# %% two_experts: two exchanges
# Solved. ...
def two_experts(tokens, expert_of_token, apply):
    outputs = torch.empty_like(tokens)
    for expert in (0, 1):
        of_expert = expert_of_token % 2 == expert
        rows, plan = dispatch(tokens[of_expert], expert_of_token[of_expert] // 2)
        outputs[of_expert] = combine(apply(2 * rank + expert, rows), plan)
    return outputs

# %% two_experts: experts of other ranks
# Not yet. ...
# solution, with `expert_of_token // 2` as `expert_of_token % n`
# and `(2 * rank, 2 * rank + 1)` as `(rank, rank + n)`

# %% new_bias: solution
# Solved. Every rank has the same new bias, from the loads over all ranks.

# %% new_bias: by an all_gather
# Solved. ...
def new_bias(bias, chosen, speed):
    counts = torch.bincount(chosen.flatten(), minlength=n)
    of_all = [torch.empty_like(counts) for _ in range(n)]
    dist.all_gather(of_all, counts)
    counts = torch.stack(of_all).sum(dim=0)
    return bias + speed * torch.sign(counts.sum() - n * counts)

# %% new_bias: counts only up to its last expert
# Not yet. Rank 0 raised RuntimeError: The size of tensor a (4) must match the size of tensor b (3) ...
# solution, with `, minlength=n` as ``

# %% new_bias: a mean rounded down
# Not yet. With one more token for the last expert, the experts got [4, 4, 4, 5] tokens of all ranks, ...
# solution, with `counts.double().mean()` as `counts.sum() // n`

# %% new_bias: the first choice of each token
# Not yet. With two experts for each token, the experts got [5, 3, 5, 7] tokens of all ranks, and rank 0 returned ...
# solution, with `chosen.flatten()` as `chosen[:, 0]`

# %% new_bias: skeleton
# Not yet. With mixed tokens, the experts got [...] tokens of all ranks, and rank 0 returned [...], expected [...].

# %% new_bias: the busy experts get more
# Not yet. With mixed tokens, the experts got [...
# solution, with `bias - speed` as `bias + speed`

# %% new_bias: only up or down
# Not yet. With a token for each expert, the experts got [4, 4, 4, 4] tokens of all ranks, ...
# solution, with `(counts - counts.double().mean()).sign()`
# as `torch.where(counts > counts.double().mean(), 1.0, -1.0)`

# %% new_bias: by the difference
# Not yet. With mixed tokens, the experts got [...
# solution, without `.sign()`

# %% new_bias: in place
# Not yet. Rank 0 changed its argument `bias`, expected it unchanged.
# solution, with `return bias - speed *` as `return bias.sub_(speed *` and `.sign()` as `.sign())`

# %% new_bias: without return
# Not yet. With mixed tokens, rank 0 returned None, expected a tensor of shape [4].
# solution, with `return bias` as `bias`

# %% World(2), World(5): MyExchange, my_dispatch, my_combine, two_experts, new_bias
