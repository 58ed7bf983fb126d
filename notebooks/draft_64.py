import json, nbformat
from pathlib import Path
B="https://github.com/attnlab/attnlab/blob/main/notebooks/64_what_is_hidden_decides.ipynb"
cells=[]
def md(text,*tags): add("markdown",text,tags)
def code(text,*tags,**meta): add("code",text,tags,**meta)
def add(kind,text,tags,**meta):
    c=(nbformat.v4.new_markdown_cell if kind=="markdown" else nbformat.v4.new_code_cell)(text.strip("\n"))
    c["id"]=f"hidden-{len(cells):02}"
    c["metadata"]={**({"tags":[*tags]} if tags else {}),**meta}; cells.append(c)
def guess(text,*tags): code("# @title Predict\n"+text.strip("\n"),*tags,cellView="form",jupyter={"source_hidden":True})

md("""
# 64 · What was hidden decides what a model knows?

[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/attnlab/attnlab/blob/main/notebooks/64_what_is_hidden_decides.ipynb) [![Open on Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/attnlab/attnlab/main?urlpath=lab%2Ftree%2Fnotebooks%2F64_what_is_hidden_decides.ipynb)

**20 min** to read · **60 min** to work · **40 s** to run on two cores · **800 MB** of memory · no GPU · before this:
[05 · A transformer from scratch](05_a_transformer_from_scratch.ipynb)

[Notation and glossary](notation.md)

You will be able to

- **write** what a masked language model reads and what it has to answer;
- **read** off frozen states what an encoder knows, with a linear probe and its two controls;
- **compare** eight objectives that train one encoder with the same updates;
- **judge** a claim about signal per token at equal computation.
""","header")
code("""
try:
    import attnlab
except ImportError:  # on Colab
    %pip install -q "attnlab[widgets] @ git+https://github.com/attnlab/attnlab"
    import attnlab
import torch

from attnlab import exercises
from attnlab.experiments import stored
from attnlab.experiments import what_is_hidden as experiment
from attnlab.figures.dots import score_dots
from attnlab.lens.probes import probe
from attnlab.tasks import Batch
from attnlab_widgets.predict import predict
from attnlab_widgets.what_is_hidden import WhatIsHidden

torch.manual_seed(0)
torch.set_num_threads(1)  # small tensors: a second thread costs more than it saves
""","setup")
md("""
## One text, eight questions

An **objective** says what of a text is hidden from a model and what the model has to answer. The picture shows one sentence as eight objectives hand it to eight encoders. The encoders have the same size and began with the same weights. Each was trained by its own objective for 600 updates, on other topics of the Python documentation.
""","surprise")
code("WhatIsHidden.stored(objective=\"next_token\")","surprise")
md("""
A dot marks every token whose answer is scored. Choose an objective in the grid, then a place in the strip below it: the page shows what this encoder guesses there, and at the right where its loss came from while it was trained.

> **Eight encoders, the same text, the same number of updates. Does what was hidden decide what they know?**
""","surprise")
md("""
## The idea

All these objectives need no labels: the text itself has the answers. They differ in three ways.

- **What is hidden.** A **next-token** model sees no later token. A **masked** model sees both sides, and 15 % of the tokens are missing. ELECTRA reads a whole text, in which a small model has replaced some tokens.
- **What is asked.** The missing token; or whether a token was replaced; or which half of the text came first; or which other text belongs to this one.
- **How much is asked.** A next-token model and ELECTRA's discriminator answer at every token, a masked model at 15 % of them, an order of sentences is one answer for a whole text.

What an encoder knows is read off its states by a **probe**: the encoder stays as it is, and a linear classifier is trained on its states for a question with known answers.
""","idea")
md(r"""
## The equation

Of a text $x_1, \ldots, x_n$ the places $M$ are asked, round($0.15\,n$) of them. The model reads $\hat{x}$, which is the text with changes at these places alone, and its loss is

$$-\sum_{i \in M} \log p(x_i \mid \hat{x}).$$

At a place of $M$ it reads a mask in 8 of 10 cases, another token in 1 of 10, and the token itself in 1 of 10. The last two keep it from trusting what it sees.

A probe for yes or no computes, from the frozen state $h_i$ of token $i$,

$$p(\text{yes}) = \sigma(w \cdot h_i + c),$$

and only $w$ and $c$ are learned.
""","equation")
md("""
## The code

One masked text. The cell draws three random numbers for each token: which places come first, what becomes of a place, and which other token might stand there. The library takes the same numbers.
""","code")
code("""
def hide(tokens, order, kind, other, vocab, rate=0.15):
    scored = order.argsort().argsort() < round(rate * len(tokens))
    read = tokens.clone()
    read[scored & (kind < 0.8)] = vocab  # the mask is the token after those of the text
    replaced = scored & (kind >= 0.8) & (kind < 0.9)
    read[replaced] = (other * vocab).long()[replaced]
    targets = torch.where(scored, tokens, -100)
    return read, targets


tokens = torch.randint(50, (1, 60), generator=torch.Generator().manual_seed(1))
draws = torch.rand(1, 3, 60, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
read, targets = hide(tokens[0], *draws[0], vocab=50)
asked = attnlab.build("masked_lm", vocab=50).prepare(Batch(tokens, tokens), torch.Generator().manual_seed(7))
print("as the library reads:", torch.equal(read, asked.inputs[0]), "· as it asks:", torch.equal(targets, asked.targets[0]))
print("asked:", int((targets >= 0).sum()), "of 60 · masks:", int((read == 50).sum()),
      "· another token:", int(((read != tokens[0]) & (read < 50)).sum()))
""","code","from-scratch","nbval-check-output")
md("""
### A probe and its controls

Two directions of noise and one that tells the answer, as made-up states. The probe is a logistic regression on states of mean 0 and variance 1. Beside it stand the two **controls** that every probe needs: what it reads off states that nobody has trained, and what it has right after training on **shuffled labels**.
""","code")
code("""
g = torch.Generator().manual_seed(3)
labels, new_labels = (torch.randint(2, (m,), generator=g) for m in (600, 400))
trained, new = (torch.randn(1, len(y), 3, generator=g) for y in (labels, new_labels))
trained[0, :, 2] += 3 * labels
new[0, :, 2] += 3 * new_labels
found = probe(trained, labels, new, new_labels, g)
print(f"right on new states: {'more than 85 %' if found.right[0] > 0.85 else found.right}")
print(f"after shuffled labels: {'between 30 and 70 %' if 0.3 < found.shuffled[0] < 0.7 else found.shuffled}")
""","code","holds-with-room")
md("""
## Predict, then look

### What a masked model guesses

The masked model of the picture has made 600 updates of 16 windows with 64 pieces each, so it has seen about 600,000 pieces and answered for 15 % of them.
""","predict")
guess("""
def look():
    found = WhatIsHidden.stored()
    words = found._hidden["words"]
    for name in ("masked_lm", "next_token"):
        found.objective = name
        drawn = found.drawn()
        scored = [at for at, place in enumerate(drawn["asked"]) if place[1] >= 0][:6]
        for at in scored:
            guesses = ", ".join(f"{words[word]} ({percent} %)" for word, percent in drawn["guesses"][at])
            print(f"{name:10} wanted {words[drawn['asked'][at][1]]:9} guesses {guesses}")
    for name in ("masked_lm", "next_token"):
        rows = " ".join(f"{numbers[f'{name}, loss in part 6 of 6, seed {seed}']:.2f}" for seed in experiment.SEEDS)
        print(f"{name:10} loss in the last 100 updates, by seed: {rows} nats")
    print(f"frequencies alone: {numbers['frequencies alone, loss']:.2f} nats")


numbers = stored("64_what_is_hidden.json", "what_is_hidden")
predict("64.1", look)
""","predict")
md("""
## Train it small

The experiment `what_is_hidden` trains the encoder (width 48, two layers, four heads) by eight objectives with three seeds, and a probe asks six questions at the states after each layer. The labels come from the text itself.

- **brackets**: does the piece stand inside brackets? **heading**: is it in a line that the next line underlines? **code**: is it in an indented line?
- **exchanged**: has the piece changed places with its neighbour? (The text is disturbed for this question.)
- **halves**: are the halves of the window in their order? **together**: are two halves from the same topic?

Guessing is right for 50 %. A probe learns from topics that the encoder was trained on, and is asked topics that neither has seen. The budget is the same for all, 600 updates at one learning rate that was tuned for none of them. So the lesson compares a **budget**, and not what each objective can reach.

The next cell trains two of them for 100 updates, to see that the loss of frequencies is where both begin.

*The numbers of a training can differ a little from machine to machine: processors round differently, and every step enlarges the difference.*
""","train")
code("""
for name in ("next_token", "masked_lm"):
    model, history = experiment.train(name, seed=0, steps=100)
    losses = history.column("loss")
    print(f"{name:10} loss of updates 1 to 10: {sum(losses[:10]) / 10:.2f}, of 91 to 100: {sum(losses[-10:]) / 10:.2f} nats")
print(f"frequencies alone: {numbers['frequencies alone, loss']:.2f} nats")
""","train")
code("""
ARMS = (experiment.RANDOM, *experiment.OBJECTIVES)
LAST = experiment.SIZES["layers"]


def scores(question, arms=ARMS, layer=LAST):
    \"\"\"What a probe has right after a layer, for each arm a list over seeds.\"\"\"
    return {arm: [numbers[f"{arm}, {question}, layer {layer}, seed {seed}"] for seed in experiment.SEEDS] for arm in arms}


def listed(question, arms=ARMS):
    \"\"\"By seed, and how far from the random encoder of the same seed, with the error of the mean.\"\"\"
    own = torch.tensor(scores(question)[experiment.RANDOM])
    for arm, row in scores(question, arms).items():
        apart = torch.tensor(row) - own
        print(f"{arm:15} {question:9} " + " ".join(f"{x:5.1f}" for x in row)
              + f"   minus the random encoder {apart.mean():+5.1f} ± {apart.std() / len(row) ** 0.5:.1f}")
""","train")
md("""
### Headings without training

A heading is told by the line below it. Before any trained encoder is looked at: what does a probe read off an encoder whose weights are random?
""","predict")
guess("""
def look(title):
    listed("heading")
    shuffled = [numbers[f"{arm}, shuffled labels, seed {seed}"] for arm in ARMS for seed in experiment.SEEDS]
    print(f"with shuffled labels, all encoders and questions: {min(shuffled):.1f} to {max(shuffled):.1f} %")
    return score_dots({"heading": scores("heading")}, title=title)


predict("64.2", look)
""","predict")
md("""
### Which encoder knows what

Now all questions. Compare every row with "no training".
""","predict")
guess("""
def look(title):
    for question in ("together", "brackets", "code"):
        listed(question)
    return score_dots({question: scores(question) for question in ("together", "brackets", "code")}, title=title)


predict("64.3", look)
""","predict")
code("""
for question in ("exchanged", "halves"):
    listed(question)
score_dots({question: scores(question) for question in ("exchanged", "halves")},
           title="EXCHANGED_TITLE")
""","train")
md("""
EXCHANGED_TEXT
""","train")
md("""
## Signal per token, at equal computation

ELECTRA's paper says that its discriminator learns more from the same computation, because it answers at every token and not at 15 % of them. The control is in the same paper: ask the discriminator at the hidden 15 % alone. It costs the same and gives up what is said to be the reason.

Computation is counted in FLOPs of an update, forward and backward, with ELECTRA's generator. ELECTRA's head has one output where the masked model's has 513, so an update of ELECTRA costs less here: its 600 updates are worth 528 of the masked model.
""","predict")
guess("""
def look(title):
    names = {"electra, everywhere": "electra", "electra, at hidden": "once, electra at hidden",
             "masked, same FLOPs": "once, masked_lm", "masked, 3,000 updates": "long, masked_lm",
             "no training": experiment.RANDOM}
    panels = {}
    for question in ("brackets", "heading", "code", "together"):
        panels[question] = {said: scores(question, [arm])[arm] for said, arm in names.items()}
    mean = {said: torch.tensor([panels[q][said] for q in panels]).mean(0) for said in names}
    for said, row in mean.items():
        print(f"{said:22} mean of four questions, by seed: " + " ".join(f"{x:5.1f}" for x in row.tolist()))
    for said, arm in names.items():
        if arm != experiment.RANDOM:
            losses = " ".join(f"{numbers[f'{arm}, loss in part {part} of 6, seed {seed}']:.2f}" for seed in experiment.SEEDS for part in (5, 6))
            print(f"{said:22} loss in parts 5 and 6 of 6, seed after seed: {losses}")
    return score_dots(panels, title=title)


predict("64.4", look)
""","predict")
md("""
## Break it

### Everything hidden

With a rate of 1 nothing of the text is left to read. The cell trains the masked model so for 100 updates and asks how far below the loss of frequencies it can come.
""","break")
code("""
from attnlab.train import evaluate, fit

model = experiment.build("masked_lm", seed=0)
blind = attnlab.build("masked_lm", vocab=experiment.PIECES, rate=1.0, masks=1.0, random=0.0)
fit(model, experiment.text(), 100, objective=blind, batch_size=16, learning_rate=5e-3, seed=0, progress=False, device="cpu")
loss = evaluate(model, experiment.text(), objective=blind, split="train").loss
print(f"loss with everything hidden: {loss:.2f} nats; frequencies alone: {numbers['frequencies alone, loss']:.2f}")
""","break")
md("""
It cannot come below, apart from the noise of the windows that are asked: without a token to read, the frequencies are all that there is to know. A masked model with a loss near this number uses nothing of what it reads.
""","break")
md("""
## Exercises

Replace the `...` and run: the cell checks your answer.

### 1 · Answers of an update — ●○○, 4 minutes

A batch has 32 texts of 128 tokens. A masked language model hides 15 % of each text. How many answers does one update score?
""","exercise")
code("""
answers = ...


exercises.check_scored_answers(answers)
""","exercise")
md("""
<details><summary>Hint</summary>

Of each text round(0.15 · 128) places are asked.

</details>

<details><summary>Solution</summary>

```python
answers = 32 * round(0.15 * 128)  # 608
```

ELECTRA's discriminator would score 4,096.

</details>

### 2 · What the model reads — ●●○, 10 minutes

Write `read(tokens, scored, kind, other, mask)`, which returns what the model reads (n,): at scored places the mask where `kind` is below 0.8, the token of `other` where it is from 0.8 up to 0.9, and everywhere else the token itself.
""")
code("""
def read(tokens, scored, kind, other, mask):
    ...


exercises.check_masked_text(read)
""","exercise")
md("""
<details><summary>Hint</summary>

Begin with a copy of the tokens. `torch.where(condition, a, b)` chooses place by place.

</details>

<details><summary>Solution</summary>

```python
def read(tokens, scored, kind, other, mask):
    seen = torch.where(scored & (kind < 0.9), other, tokens)
    return torch.where(scored & (kind < 0.8), torch.full_like(tokens, mask), seen)
```

</details>

### 3 · Build a probe — ●●●, 30 minutes

Write `linear_probe(states, labels, new)` without a library for classifiers: the least-squares solution for the targets −1 and 1, with a constant beside the states. It returns the scores (k,) of the new states, above 0 for class 1. When it is right, use it on states of an encoder: `experiment.features(model, "next_token", "train", 200)["brackets"]` has the states of each layer and the answers, and `"validation"` the new ones. Draw each class equally often with `attnlab.lens.probes.balanced`, and do not forget the shuffled labels.
""")
code("""
def linear_probe(states, labels, new):
    ...


exercises.check_linear_probe(linear_probe)
""","exercise")
md("""
<details><summary>Hint</summary>

`torch.linalg.lstsq(a, b).solution` solves `a @ w = b` as well as it can. Give `a` one more column of ones.

</details>

<details><summary>Solution</summary>

```python
def linear_probe(states, labels, new):
    def with_one(x):
        return torch.cat([x, torch.ones_like(x[:, :1])], 1)

    targets = (2 * labels - 1).to(states.dtype)[:, None]
    w = torch.linalg.lstsq(with_one(states), targets).solution
    return (with_one(new) @ w)[:, 0]
```

</details>

### 4 · Design an experiment — ●●●, 20 minutes

After 600 updates most of these encoders do not know more than a random one. Design an experiment that tests ELECTRA's claim where both models have learned something. Write down the budget and how you know that it is enough, what is tuned and for whom, the questions, the controls, and which result would refute the claim.

<details><summary>Example of a good answer</summary>

The budget is given in FLOPs, and it grows in steps (1, 2, 4, 8 …) until the masked model's loss is clearly below that of frequencies alone and its probes are clearly above a random encoder. At each budget both get the same number of trials for the learning rate, and each is shown at its best. ELECTRA's size of the generator and its weight λ belong to these trials. Four arms: masked LM, ELECTRA, ELECTRA asked at the hidden places alone, and masked LM asked at all places. Five seeds each; probes and a fine-tuned task, and the error of the difference. The claim is refuted if ELECTRA at the hidden places alone is as good as ELECTRA everywhere: then it is not the number of answers. It is also refuted if masked LM is as good at every budget. A result at one budget says nothing about others, so the curve is shown.

</details>
""")
md("""
## What it costs

FLOPs of one update of 16 windows, forward and backward, with everything that is trained; and the answers that it scores.
""","cost")
code("""
batch = experiment.text().batch("train", 16, 0)
for name in experiment.OBJECTIVES:
    objective = experiment.objective_of(name)
    objective.fitted(experiment.build(name))
    asked = objective.prepare(batch, torch.Generator().manual_seed(0))
    print(f"{name:15} {experiment.flops(name) / 1e6:5.0f} million FLOPs {int((asked.targets >= 0).sum()):6,} answers")
""","cost","unspoiled")
md("""
The heads differ most: that of a token has 513 outputs at each place, also where nothing is scored. A program that computes them at the scored places alone saves the masked model about a quarter of an update here, and "the same computation" would then mean more updates for it. XLNet and MPNet read questions beside the text, so their rows are longer.
""","cost")
md("""
## Paper against code

| | the paper | here | well-known code |
|:--|:--|:--|:--|
| masked LM | 80 % masks, 10 % random, 10 % kept; all of the 15 % are scored | the same, a whole number of each text | Hugging Face: each token on its own with probability 0.15, and random tokens may be special ones |
| ELECTRA | generator of a quarter to a half of the width, weight 50, common embeddings | a quarter, 50, embeddings apart | the authors': places drawn with replacement; two tokens drawn for one place are averaged |
| XLNet | one token of 6, in spans, relative positions | one of 6, single tokens | Hugging Face: masks in the content stream too |
| contrastive | pairs of images and texts, or of parts of a signal | the halves of a window | the number of negatives is the batch over all devices |

The encoders of this lesson have 55,000 numbers in their layers and saw 0.6 million pieces. ELECTRA's small model has 14 million parameters and was trained for a million updates. What is shown here holds for this budget.
""","paper")
md("""
## Recap

Answer aloud, then unfold.

<details><summary>1. In which three ways do objectives differ?</summary>

In what is hidden, in what is asked, and in how many answers are scored for one text.

</details>

<details><summary>2. Why is a masked token sometimes shown as it is, and scored nevertheless?</summary>

So that the model cannot conclude from a visible token that it need not think about it: later texts have no masks.

</details>

<details><summary>3. What do the random encoder and the shuffled labels tell about a probe?</summary>

The random encoder tells what can be read without any training, and the shuffled labels what guessing gives. What a training has added is the difference to the first.

</details>

<details><summary>4. How do you see that a masked model uses nothing of what it reads?</summary>

Its loss is that of frequencies alone, and it guesses the same frequent pieces at every place.

</details>

<details><summary>5. Which control belongs to "ELECTRA learns more because it answers everywhere"?</summary>

ELECTRA asked at the hidden places alone, for the same computation, beside a masked model that is tuned as well.

</details>

### Read next

- [05 · A transformer from scratch](05_a_transformer_from_scratch.ipynb): the encoder that is trained here.
- [33 · Who uses the far past](33_who_uses_the_far_past.ipynb): another way to see what a trained model uses.
- [72 · Quality for compute](72_quality_for_compute.ipynb): comparing at equal computation.
- The pages: [`masked_lm.py`](../attnlab/objectives/masked_lm.py), [`electra.py`](../attnlab/objectives/electra.py), and the probes, [`probes.py`](../attnlab/lens/probes.py).

### References

- J. Devlin, M. Chang, K. Lee, K. Toutanova. *BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding.* NAACL 2019. [arXiv:1810.04805](https://arxiv.org/abs/1810.04805)
- K. Clark, M. Luong, Q. Le, C. Manning. *ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators.* ICLR 2020. [arXiv:2003.10555](https://arxiv.org/abs/2003.10555)
- G. Alain, Y. Bengio. *Understanding intermediate layers using linear classifier probes.* 2016. [arXiv:1610.01644](https://arxiv.org/abs/1610.01644)
- J. Hewitt, P. Liang. *Designing and Interpreting Probes with Control Tasks.* EMNLP 2019. [arXiv:1909.03368](https://arxiv.org/abs/1909.03368)
""","recap")
nb=nbformat.v4.new_notebook(cells=cells)
meta=json.load(open("./notebooks/08_experts.ipynb"))["metadata"]
nb["metadata"]={"attnlab":{"core":{"exercises":[1,2],"sections":["One text, eight questions","The idea","The equation","The code","A probe and its controls","What a masked model guesses","Train it small","Headings without training","Which encoder knows what"]},"gpu":False,"memory_mb":800,"minutes":20,"number":64,"prerequisites":["05_a_transformer_from_scratch"],"question":"What was hidden decides what a model knows?","seconds":40,"work_minutes":60},"kernelspec":meta["kernelspec"],"language_info":meta["language_info"]}
p=Path("./notebooks/64_what_is_hidden_decides.ipynb")
T=json.load(open("texts.json")) if Path("/tmp/h/texts.json").exists() else {}
for c in nb.cells:
    for k,v in T.items(): c["source"]=c["source"].replace(k,v)
p.write_text(json.dumps(nb,indent=1,ensure_ascii=False)+"\n")
print(len(cells))
