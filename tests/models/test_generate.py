import numpy as np
import pytest
import torch

from attnlab.core.visibility import Visibility
from attnlab.models.generate import generate, sample
from attnlab.models.tiny import TinyTransformer
from attnlab.train.states import stored


def seeded():
    return torch.Generator().manual_seed(11)


@pytest.mark.parametrize("how", [{}, {"temperature": 0.0}, {"temperature": 0.7, "top_k": 5}])
@pytest.mark.parametrize(
    "options",
    [
        {"norm": "pre", "positions": "none"},
        {"norm": "post", "positions": "sinusoidal"},
        {"attention": "multi_query"},
        {"attention": ["full", "multi_query"], "dim": 12, "heads": 4},
    ],
)
def test_steps_and_reruns_give_the_same_tokens(make, tokens, how, options):
    model = make(**options)
    fast, slow = (
        generate(model, tokens, 12, generator=seeded(), incremental=incremental, **how)
        for incremental in (True, False)
    )
    assert torch.equal(fast, slow)
    assert torch.equal(fast[:, :11], tokens)
    assert fast.shape == (3, 23)


def test_encoder_decoder_steps_and_reruns_give_the_same_tokens(make, tokens, source):
    model = make("encoder_decoder")
    padding = torch.arange(17) < torch.tensor([[17], [13], [5]])
    fast, slow = (
        generate(
            model,
            tokens[:, :1],
            19,
            generator=seeded(),
            source=source,
            source_padding=padding,
            incremental=incremental,
        )
        for incremental in (True, False)
    )
    assert torch.equal(fast, slow)
    assert not torch.equal(
        fast, generate(model, tokens[:, :1], 19, generator=seeded(), source=source)
    )


def test_step_equals_forward_in_numbers(make, tokens):
    model = make().double()
    state, stepped = None, []
    for t in range(11):
        logits, state = model.step(tokens[:, t : t + 1], state)
        stepped.append(logits)
    torch.testing.assert_close(torch.stack(stepped, 1), model(tokens))


def test_steps_are_taken_where_every_layer_has_them(make, tokens, monkeypatch, running_mean):
    def lengths_decoded(model):
        seen = []
        decode = model.decode
        monkeypatch.setattr(model, "decode", lambda t, *a: seen.append(t.shape[1]) or decode(t, *a))
        generate(model, tokens, 4)
        return seen

    assert lengths_decoded(make()) == []
    mixed = make(attention=["full", running_mean])
    assert not mixed.steps_incrementally
    assert lengths_decoded(mixed) == [11, 12, 13, 14]
    with pytest.raises(ValueError, match="step"):
        generate(mixed, tokens, 1, incremental=True)


@pytest.mark.parametrize(
    ("attention", "given"),
    [
        ("transformer_xl", {"segment": 4, "memory": 6}),
        ("rwkv", {}),
        ("block_recurrent", {"block": 4, "states": 3}),
        ("full", {}),
    ],
)
def test_what_is_carried_while_writing_is_constant(attention, given, monkeypatch):
    """In bytes, from one whole segment to the next; only full attention keeps more and more."""
    made = TinyTransformer(
        11, dim=12, heads=2, layers=2, max_len=128, positions="none",
        attention=attention, attention_options=given,
    )  # fmt: skip
    sizes, step = [], made.step

    def counted(tokens, state, **read):
        logits, state = step(tokens, state, **read)
        parts = stored(state.layers).values()
        sizes.append(sum(part.numel() * part.element_size() for part in parts))
        return logits, state

    monkeypatch.setattr(made, "step", counted)
    generate(made, torch.zeros(2, 16, dtype=torch.int64), 81, temperature=0)
    assert len(sizes) == 81
    later = sizes[16:48], sizes[48:80]
    assert (later[0] == later[1]) == (attention != "full")


def test_past_max_len_the_last_tokens_are_read(make, tokens):
    model = make()
    out = generate(model, tokens, 20, temperature=0)
    assert out.shape == (3, 31)
    for t in range(22, 30):
        window = out[:, max(0, t + 1 - 23) : t + 1]
        assert torch.equal(model(window)[:, -1].argmax(-1), out[:, t + 1])
    assert torch.equal(out, generate(model, tokens, 20, temperature=0, incremental=False))


def test_greedy_takes_the_most_likely(make, tokens):
    model = make()
    out = generate(model, tokens, 3, temperature=0)
    assert torch.equal(model(out[:, :-1])[:, -3:].argmax(-1)[:, 0], out[:, 11])
    assert torch.equal(model(out[:, :-1]).argmax(-1)[:, -1], out[:, -1])


def test_draws_follow_the_tempered_softmax():
    logits = torch.tensor([[0.0, 1.0, 3.0, -torch.inf, 2.0]])
    many = logits.expand(20011, 5)
    drawn = sample(many, 2.0, None, seeded()).flatten()
    frequency = torch.bincount(drawn, minlength=5) / len(drawn)
    torch.testing.assert_close(frequency, (logits[0] / 2).softmax(-1), atol=0.015, rtol=0)
    best = sample(many, 1.0, 2, seeded()).flatten()
    frequency = torch.bincount(best, minlength=5) / len(best)
    expected = torch.zeros(5)
    expected[[2, 4]] = torch.tensor([3.0, 2.0]).softmax(-1)
    torch.testing.assert_close(frequency, expected, atol=0.015, rtol=0)


def test_exactly_k_candidates_where_scores_tie():
    drawn = sample(torch.zeros(2003, 7), 1.0, 3, seeded())
    assert len(drawn.unique()) == 3


def test_the_model_is_left_as_it_was(make, tokens):
    model = make(dropout=0.5).train()
    before = torch.random.get_rng_state()
    graphs = []
    model.decoder.blocks[0].feed_forward.register_forward_hook(
        lambda _module, _inputs, out: graphs.append(out.requires_grad)
    )
    first = generate(model, tokens, 5, generator=seeded())
    assert set(graphs) == {False}, "writing keeps nothing for a backward pass"
    assert model.training
    assert all(module.training for module in model.modules())
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first, generate(model.eval(), tokens, 5, generator=seeded()))


def test_every_submodule_keeps_its_own_mode(make, tokens):
    model = make(dropout=0.5).train()
    model.decoder.blocks[0].eval()
    model.embedding.eval()
    before = {name: module.training for name, module in model.named_modules()}
    assert len(set(before.values())) == 2
    generate(model, tokens, 2)
    assert {name: module.training for name, module in model.named_modules()} == before
    model.embedding.weight.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN"):
        generate(model, tokens, 2)
    assert {name: module.training for name, module in model.named_modules()} == before


def test_zero_steps_return_the_prompt(make, tokens):
    assert torch.equal(generate(make(), tokens, 0), tokens)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"steps": -1}, "steps should be at least 0, got -1"),
        ({"steps": 10**12}, "steps should be at most 100,000, got 1000000000000"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 30}, "top_k"),
        ({"temperature": -1, "steps": 0}, "temperature"),
        ({"source": torch.zeros(3, 5, dtype=torch.long)}, "source"),
    ],
)
def test_refusals(make, tokens, options, word):
    with pytest.raises(ValueError, match=word):
        generate(make(), tokens, **({"steps": 2} | options))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 1.5}, "steps should be a whole number, got 1.5"),
        ({"steps": True}, "steps should be a whole number, got True"),
        ({"top_k": 2.5}, "top_k should be a whole number, got 2.5"),
        ({"top_k": True}, "top_k should be a whole number, got True"),
        ({"temperature": "hot"}, "temperature should be a number, got 'hot'"),
        ({"temperature": None}, "temperature should be a number, got None"),
        ({"temperature": [1.0]}, "temperature should be a number"),
        ({"generator": 3}, r"generator should be a torch\.Generator or None, got a int"),
        ({"incremental": "no"}, "incremental should be True or False, got 'no'"),
    ],
)
def test_refuses_the_wrong_type(make, tokens, options, words):
    with pytest.raises(TypeError, match=words):
        generate(make(), tokens, **({"steps": 2} | options))


@pytest.mark.parametrize("model", [None, "full", torch.nn.Linear(3, 3)])
def test_refuses_what_is_no_model(tokens, model):
    with pytest.raises(TypeError, match="model should be a TinyTransformer, got a"):
        generate(model, tokens, 2)


def test_a_compiled_model_writes_the_same(make, tokens):
    compiled = torch.compile(make(), backend="eager")
    assert torch.equal(
        generate(compiled, tokens, 3, temperature=0), generate(make(), tokens, 3, temperature=0)
    )


def test_integers_of_numpy_are_welcome(make, tokens):
    plain = generate(make(), tokens, 3, top_k=5, generator=seeded())
    assert torch.equal(
        generate(make(), tokens, np.int64(3), top_k=np.int32(5), generator=seeded()), plain
    )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("incremental", [True, False])
def test_a_model_that_gives_nan_is_refused(make, tokens, temperature, incremental):
    model = make()
    model.decoder.blocks[1].feed_forward.contract.bias.data[3] = torch.nan
    with pytest.raises(ValueError, match="the logits hold NaN"):
        generate(model, tokens, 2, temperature=temperature, incremental=incremental)


@pytest.mark.parametrize(
    ("logits", "error", "words"),
    [
        ([1.0, 2.0], TypeError, "logits should be a tensor, got a list"),
        (torch.zeros(3), ValueError, r"\(b, vocab\).* got torch.float32 of shape \(3,\)"),
        (torch.zeros(2, 3, 5), ValueError, r"shape \(2, 3, 5\)"),
        (torch.zeros(2, 0), ValueError, r"shape \(2, 0\)"),
        (torch.zeros(2, 3, dtype=torch.long), ValueError, "torch.int64"),
        (torch.full((2, 3), -torch.inf), ValueError, "nothing but −∞"),
        (torch.full((2, 3), torch.inf), ValueError, "NaN or"),
    ],
)
def test_logits_from_which_nothing_can_be_drawn(logits, error, words):
    with pytest.raises(error, match=words):
        sample(logits)


def test_a_generator_or_logits_on_another_device(make, tokens):
    model, elsewhere = make().to("meta"), tokens.to("meta")
    with pytest.raises(ValueError, match="generator is on cpu but the tokens are on meta"):
        generate(model, elsewhere, 2, generator=seeded())
    with pytest.raises(ValueError, match="meta device hold no numbers"):
        generate(model, elsewhere, 2)


def test_an_empty_batch_stays_empty(make, tokens):
    for incremental in (True, False):
        assert generate(make(), tokens[:0], 5, incremental=incremental).shape == (0, 16)


def test_the_prompt_is_checked_even_for_no_steps(make, tokens):
    with pytest.raises(ValueError, match="whole numbers"):
        generate(make(), tokens.float(), 0)
    with pytest.raises(ValueError, match="99 does not"):
        generate(make(), torch.cat([torch.full((3, 30), 99), tokens], 1), 1)


def test_refuses_a_prompt_of_another_shape(make, tokens):
    with pytest.raises(ValueError, match=r"\(b, n\), got shape \(11,\).* tokens\[None\]"):
        generate(make(), tokens[0], 2)
    with pytest.raises(ValueError, match=r"\(b, n\), got <class 'list'>"):
        generate(make(), [[1, 2]], 2)


@pytest.mark.parametrize("temperature", [1e-5, 1e-40, 1e-45, 1e-46, 5e-324])
def test_the_lowest_temperatures_take_the_most_likely(make, tokens, temperature):
    greedy = generate(make(), tokens, 5, temperature=0)
    assert torch.equal(generate(make(), tokens, 5, temperature=temperature), greedy)
    assert torch.equal(generate(make(), tokens, 5, temperature=temperature, top_k=3), greedy)


def test_refuses_an_empty_prompt_a_classifier_and_a_missing_source(make, tokens):
    with pytest.raises(ValueError, match="empty"):
        generate(make(), tokens[:, :0], 2)
    with pytest.raises(ValueError, match="classifier"):
        generate(make("classifier"), tokens, 2)
    with pytest.raises(ValueError, match="source"):
        generate(make("encoder_decoder"), tokens, 2)


@pytest.mark.parametrize("positions", ["learned", "rope"])
def test_after_a_prefix_it_writes_what_a_prefix_model_answers(make, tokens, positions):
    model, prefix = make(positions=positions), tokens.shape[1]
    found = generate(model, tokens, 4, temperature=0, prefix=prefix)
    assert torch.equal(found[:, :prefix], tokens)
    for n in range(prefix, prefix + 4):
        place = torch.arange(n)
        seen = (place <= place[:, None]) | (place < prefix)
        logits = model(found[:, :n], structure=Visibility(seen.expand(len(tokens), n, n)))
        assert torch.equal(found[:, n], logits[:, -1].argmax(-1))


def test_a_prefix_of_one_token_changes_nothing(make, tokens):
    model = make()
    one = generate(model, tokens, 6, generator=seeded(), prefix=1)
    assert torch.equal(one, generate(model, tokens, 6, generator=seeded()))
    drawn = [generate(model, tokens, 6, generator=seeded(), prefix=p) for p in (1, 11)]
    assert not torch.equal(*drawn)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("language_model", {"prefix": 12}, "prefix=12 is more than the prompt's 11 tokens"),
        ("language_model", {"prefix": 0}, "prefix should be at least 1, got 0"),
        ("language_model", {"prefix": 3, "incremental": True}, "without incremental=True"),
        ("language_model", {"prefix": 3, "steps": 1000}, "here up to 1010, more than its max_len"),
        ("encoder_decoder", {"prefix": 3}, "prefix is for a language_model"),
    ],
)
def test_a_prefix_that_cannot_be_read_is_refused(make, tokens, source, kind, options, words):
    given = {"steps": 2, "source": source if kind == "encoder_decoder" else None, **options}
    with pytest.raises(ValueError, match=words):
        generate(make(kind), tokens, **given)


def decided(model):
    """With weights so large that what is drawn depends on all that was read."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return model


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"positions": "rope"}, {"attention": "multi_query", "positions": "sinusoidal"}]
)
def test_vectors_of_tokens_are_continued_as_the_tokens(make, tokens, options, incremental):
    """Up to max_len and past it, where the first vectors are not read any more."""
    model = decided(make(**options))
    vectors = model.embedding(tokens).detach()
    for steps in (9, model.max_len + 3):
        given = {"generator": seeded(), "incremental": incremental}
        wanted = generate(model, tokens, steps, **given | {"generator": seeded()})
        found = generate(model, None, steps, inputs_embeds=vectors, **given)
        assert torch.equal(found, wanted[:, 11:])


def test_vectors_after_a_prefix_or_a_source_are_continued_as_the_tokens(make, tokens, source):
    model = decided(make())
    vectors = model.embedding(tokens).detach()
    wanted = generate(model, tokens, 4, generator=seeded(), prefix=7)
    found = generate(model, None, 4, inputs_embeds=vectors, generator=seeded(), prefix=7)
    assert torch.equal(found, wanted[:, 11:])
    model = decided(make("encoder_decoder"))
    vectors = model.embedding(tokens[:, :2]).detach()
    wanted = generate(model, tokens[:, :2], 6, generator=seeded(), source=source)
    found = generate(model, None, 6, inputs_embeds=vectors, generator=seeded(), source=source)
    assert torch.equal(found, wanted[:, 2:])


def test_vectors_that_are_no_tokens_lead_to_other_words(make, tokens):
    model = make()
    vectors = model.embedding(tokens).detach()
    given = {"temperature": 0, "inputs_embeds": vectors + torch.randn_like(vectors)}
    plain, moved = generate(model, tokens, 12, temperature=0), generate(model, None, 12, **given)
    assert moved.shape == (3, 12)
    assert not torch.equal(moved, plain[:, 11:])
    assert generate(model, None, 0, inputs_embeds=vectors).shape == (3, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v, t: {"tokens": t}, "either tokens or inputs_embeds"),
        (lambda v, t: {"inputs_embeds": v[:, :0]}, "prompt is empty"),
        (lambda v, t: {"inputs_embeds": v[..., :3]}, "inputs_embeds should be float vectors"),
        (lambda v, t: {"inputs_embeds": v.long()}, "inputs_embeds should be float vectors"),
        (lambda v, t: {"prefix": 12}, "prefix=12 is more than the prompt's 11"),
        (lambda v, t: {"inputs_embeds": None}, "prompt should be a tensor of tokens"),
    ],
)
def test_a_prompt_of_vectors_that_does_not_fit_is_refused(make, tokens, change, words):
    model = make()
    vectors = model.embedding(tokens).detach()
    given = {"tokens": None, "steps": 3, "inputs_embeds": vectors, **change(vectors, tokens)}
    with pytest.raises(ValueError, match=words):
        generate(model, **given)


def test_vectors_of_another_device_are_refused(make):
    model = make()
    elsewhere = torch.zeros(2, 3, model.dim, device="meta")
    with pytest.raises(ValueError, match="inputs_embeds is on meta but the model is on cpu; move"):
        generate(model, None, 2, inputs_embeds=elsewhere)
    longer = torch.zeros(2, model.max_len + 1, model.dim)  # the last of them are read
    assert generate(model, None, 2, inputs_embeds=longer).shape == (2, 2)
