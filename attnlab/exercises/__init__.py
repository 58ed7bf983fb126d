"""Instant checks beside the exercises of the lessons.

A check takes the learner's function (or number), calls it on small numbers that are the same every
time, and gives a `Verdict`: right, or not yet with the misconception by its name. It never raises
for a wrong solution; an exception in the learner's code becomes a sentence.

    check_attended_position       00  a position
    check_previous_share          00  previous_share(weights)
    check_attention_parameters    00  a number of parameters
    check_writer                  00  write(logits_of, ids, steps, temperature, top_k, draw)
    check_attention               01  attention(q, k, v)
    check_causal                  01  causal_attention(q, k, v)
    check_masked_softmax          01  masked_softmax(scores, mask)
    check_backward                01  backward(q, k, v, grad)
    check_split_heads             02  split_heads(x, heads)
    check_merge_heads             02  merge_heads(out)
    check_repeat_heads            02  repeat_heads(k, h)
    check_step                    02  decode(q_last, keys, values)
    check_cache_bytes             02  a number of bytes
    check_grouped_layer           02  layer(x, Wq, Wk, Wv, Wo, h, g, keys, values)
    check_online_softmax          03  update(largest, total, out, scores, values)
    check_merge                   03  merge(out_a, lse_a, out_b, lse_b)
    check_score_bytes             03  a number of bytes
    check_tiled_attention         03  attend(q, k, v, tile)
    check_arrival_share           04  a share
    check_mean_ablation           04  ablated(out, W, a)
    check_entropy                 04  entropy(row)
    check_arriving_shares         04  shares(x, Wq, Wk, Wv, Wo)
    check_decoder_rows            05  rows(words, start, end)
    check_layer_norm              05  layer_norm(x, gain, bias, eps)
    check_decoder_parameters      05  a count of parameters
    check_decoder_layer           05  layer(x, memory, real, own, cross, W1, W2)
    check_embedding               06  embed(ids, tokens, places)
    check_heads_attend            06  attend(x, Wq, Wk, Wv, Wo, heads)
    check_network                 06  feed_forward(x, W1, b1, W2, b2)
    check_block                   06  block(x, attention, network, gain, bias)
    check_stack                   06  stack(x, blocks, gain, bias, tokens)
    check_next_token_loss         06  next_token_loss(scores, ids)
    check_training                06  train(parameters, loss_of, batches, rate)
    check_whole_model             06  model(ids, weights, heads)
    check_aligned                 10  aligned(i, j, s)
    check_summaries               10  is_summary(j, s, c, head)
    check_strided_keys            10  a number of keys
    check_fixed_blocks            10  attend(q, k, v, s, c)
    check_window_mask             11  window_mask(n, window)
    check_layers_until_connected  11  layers_until_connected(mask)
    check_etc_pairs               11  a number of pairs
    check_bigbird                 11  attend(q, k, v, block, drawn)
    check_neighbourhood           12  near(i, j, width, rows, columns)
    check_axis                    12  shares(i, j, width, axis)
    check_axial_pairs             12  a number of pairs
    check_generator               12  generator(x, height, width)
    check_visible_slots           13  visible(n, width, stride)
    check_block_means             13  block_means(x, block, real)
    check_transient_keys          13  a number of keys
    check_transient               13  transient(x, query, key, value, radius, block)
    check_rounds                  14  a number of rounds
    check_without_key             14  without_key(own, keys)
    check_sorted_round            14  lsh_round(q, v, buckets, chunk)
    check_sorting_length          15  a number of tokens
    check_recent_members          15  may_attend(x, centroids, w)
    check_causal_sorting          15  attend(q, k, v, scores, block)
    check_gap                     16  a gap between two scores
    check_sparsemax               16  sparsemax(z)
    check_soft_mask               16  soft_mask(distances, z, ramp)
    check_entmax_attention        16  attend(q, k, v)
    check_fetch                   17  fetch(q, keys, values, k)
    check_gated                   17  gated(near, far, b)
    check_index_ratio             17  a number of times
    check_read                    17  read(q, k, v, g, segment, memory, neighbours)
    check_table_length            20  a length at which two counts are equal
    check_factorized              20  factorized(A, B)
    check_mixture                 20  mixture(numbers, first, second)
    check_dense_layer             20  dense_layer(x, W1, b1, W2, b2, Wv, Wo)
    check_projected_keys          21  project(e, k, real)
    check_rank                    21  rank(values, share)
    check_projection_parameters   21  a count of parameters
    check_linformer_layer         21  layer(x, Wq, Wk, Wv, Wo, E, F, real)
    check_running_step            22  step(values, keys, q, k, v)
    check_causal_chunk            22  chunk(q, k, v, values, keys)
    check_cache_length            22  a number of tokens
    check_delta_layer             22  delta_layer(x, Wq, Wk, Wv, wb)
    check_feature_count           23  a number of features
    check_variance                23  variance(x, y, r)
    check_linear_order            23  linear_attention(phi_q, phi_k, v)
    check_causal_performer        23  performer(q, k, v, omega)
    check_state_numbers           24  a count of numbers
    check_fading                  24  fading(keys, values, queries, g)
    check_block_states            24  blocks(x, s, length, Wq, Wk, Wv, g)
    check_reach                   30  a number of tokens
    check_next_memory             30  next_memory(memory, segment, M)
    check_mean_floor              30  a loss in nats
    check_most_used               30  read(x, Wq, Wk, Wv, c, M, k, s)
    check_far_part                33  a number of tokens
    check_copied                  33  copied(tokens, last, distance)
    check_standard_error          33  standard_error(before, after)
    check_far_use                 33  far_use(losses_of, tokens, other, last, distances)
    check_half_life               31  a number of tokens
    check_push                    31  a number
    check_joined                  31  joined(first, second, w, tokens)
    check_time_mixing             31  mix(x, W_r, W_k, W_v, W_o, mu, w, u, state)
    check_equal_pairs             32  a number of members
    check_pool                    32  pool(seed, x, real)
    check_log_likelihood          32  log_likelihood(x, weights, means, widths)
    check_perceive                32  perceive(x, real, latents, query, encode, process, decode)
    check_sharp                   34  a number
    check_energy                  34  energy(xi, X, beta)
    check_retrieve                34  retrieve(xi, X, beta, steps)
    check_complete                34  complete(xi, known, X, beta, steps)
    check_recalled                34  recall(xi, X)
    check_transform_flops         35  a number of FLOPs
    check_padded_mixing           35  mix(x, real)
    check_hartley                 35  hartley(x)
    check_fnet_block              35  block(x, W1, W2)
    check_fast_transform          35  fast(x)
    check_mode_half_life          36  a number of tokens
    check_mode_kernel             36  kernel(A, C, step, n)
    check_convolved_piece         36  piece(u, decay, drive, C, state)
    check_h3_state                37  a count of numbers
    check_hyena_map               37  hyena_map(gates, filters)
    check_associate               37  associate(q, k, v)
    check_h3_layer                37  layer(x, Wq, Wk, Wv, Wo, taps, …, keys)
    check_convolved_parameters    38  a count of parameters
    check_band                    38  band(w, n)
    check_near_share              38  near(weights, r)
    check_dynamic_layer           38  layer(x, W, V, Wq, Wo, h, k)
    check_share_left              39  a share of the state
    check_joined_spans            39  joined(first, second)
    check_selective_layer         39  layer(u, W_step, bias, W_B, W_C, A, D, state)
    check_rotation                40  rotate(x, positions, theta)
    check_distance_biases         40  biases(slopes, n)
    check_buckets                 40  bucket(distance, buckets, largest)
    check_slowest_turn            40  a number of positions
    check_wave                    41  wave(r, omega, theta, p)
    check_complex_score           41  score(a, b, c, d)
    check_complex_layer           41  layer(r, omega, A, B, C)
    check_shift                   42  shift(scores)
    check_clipped_rows            42  rows(n, k)
    check_unused_rows             42  a number of rows
    check_memory_layer            42  attend(q, k, v, u, t, r)
    check_byte_ids                43  byte_ids(text)
    check_calibrate               43  calibrate(weights)
    check_table_width             43  a width
    check_offset_subwords         43  mixed(x, w, sizes)
    check_upward_average          50  upward_average(s, covers)
    check_root_value              50  a value
    check_chain_pairs             50  a number of pairs
    check_tree_depths             51  depths(parents)
    check_subtree_mask            51  mask(parents)
    check_tree_node               51  node(i, o, u, f, c)
    check_tree_lstm               51  states(x, parents, W, U, Uf)
    check_ring_layers             52  a number of layers
    check_graph_mask              52  mask(n, edges)
    check_laplacian               52  laplacian(A)
    check_edge_attention          52  attend(q, k, v, edges)
    check_readings                55  a number of readings
    check_cells                   55  cells(rows, columns)
    check_hop                     55  hop(q, k, v, links)
    check_follow                  55  follow(named, has, links, hops)
    check_token_count             53  a number of tokens
    check_incident                53  incident(P, edges)
    check_recovered               53  recovered(nodes, edges)
    check_message_step            53  step(P, edges, x, c)
    check_path_count              54  a number of products
    check_soft_paths              54  soft_paths(A, w)
    check_path_weight             54  weight(w, path)
    check_along_edges             54  along(v, w, sources, targets, kinds)
    check_moved_keys              60  moved_keys(q, k, c)
    check_top_share               60  top_share(scores, apart, k)
    check_equal_lengths           60  a factor
    check_induction_keys          61  keys(tokens)
    check_induction_head          61  head(x, sharpness)
    check_uniform_share           61  a share
    check_row_share               62  row_share(weights, columns)
    check_mean_by_offset          62  mean_by_offset(weights, rows, columns)
    check_uniform_row             62  a share
    check_given_back              63  given_back(q, k, scale, allowed)
    check_strongest               63  strongest(weight, bias, x, heads, allowed)
    check_collected_bytes         63  a number of bytes
    check_time_crossing           70  a number of tokens
    check_training_gain           70  a number of times
    check_exponent                70  exponent(sizes, costs)
    check_stopwatch               70  ratio(ours, base, rounds, clock)
    check_hash_length             71  a number of tokens
    check_growth                  71  growth(lengths, costs)
    check_survey_row              71  survey_row(build, lengths)
    check_seed_chance             72  a share
    check_front                   72  front(points)
    check_beaten                  72  beaten(scores, compute)
    check_number                      a count, in its unit
"""

from attnlab.core.lazy import modules_of
from attnlab.exercises.answers import check_number
from attnlab.exercises.attention import check_attention, check_causal, check_masked_softmax
from attnlab.exercises.branches import check_chain_pairs, check_root_value, check_upward_average
from attnlab.exercises.building import (
    check_block,
    check_embedding,
    check_heads_attend,
    check_network,
    check_stack,
)
from attnlab.exercises.capacity import check_block_states, check_fading, check_state_numbers
from attnlab.exercises.carried_memory import (
    check_mean_floor,
    check_most_used,
    check_next_memory,
    check_reach,
)
from attnlab.exercises.complex_words import check_complex_layer, check_complex_score, check_wave
from attnlab.exercises.costs import (
    check_exponent,
    check_stopwatch,
    check_time_crossing,
    check_training_gain,
)
from attnlab.exercises.decoding import check_cache_bytes, check_grouped_layer
from attnlab.exercises.distances import (
    check_clipped_rows,
    check_memory_layer,
    check_shift,
    check_unused_rows,
)
from attnlab.exercises.far_context import (
    check_copied,
    check_far_part,
    check_far_use,
    check_standard_error,
)
from attnlab.exercises.first_steps import (
    check_attended_position,
    check_attention_parameters,
    check_previous_share,
    check_writer,
)
from attnlab.exercises.fourier import (
    check_fast_transform,
    check_fnet_block,
    check_hartley,
    check_padded_mixing,
    check_transform_flops,
)
from attnlab.exercises.fronts import check_beaten, check_front, check_seed_chance
from attnlab.exercises.gated_convolutions import (
    check_associate,
    check_h3_layer,
    check_h3_state,
    check_hyena_map,
)
from attnlab.exercises.global_tokens import check_bigbird, check_etc_pairs
from attnlab.exercises.gradients import check_backward
from attnlab.exercises.graphs import (
    check_edge_attention,
    check_graph_mask,
    check_laplacian,
    check_ring_layers,
)
from attnlab.exercises.grids import (
    check_axial_pairs,
    check_axis,
    check_generator,
    check_neighbourhood,
)
from attnlab.exercises.hashing import check_rounds, check_sorted_round, check_without_key
from attnlab.exercises.heads import (
    check_merge_heads,
    check_repeat_heads,
    check_split_heads,
    check_step,
)
from attnlab.exercises.hops import check_cells, check_follow, check_hop, check_readings
from attnlab.exercises.induction import (
    check_induction_head,
    check_induction_keys,
    check_uniform_share,
)
from attnlab.exercises.kernels import (
    check_causal_performer,
    check_feature_count,
    check_linear_order,
    check_variance,
)
from attnlab.exercises.learned_paths import (
    check_along_edges,
    check_path_count,
    check_path_weight,
    check_soft_paths,
)
from attnlab.exercises.lowrank import (
    check_linformer_layer,
    check_projected_keys,
    check_projection_parameters,
    check_rank,
)
from attnlab.exercises.memories import (
    check_fetch,
    check_gated,
    check_index_ratio,
    check_read,
)
from attnlab.exercises.node_tokens import (
    check_incident,
    check_message_step,
    check_recovered,
    check_token_count,
)
from attnlab.exercises.own_model import check_collected_bytes, check_given_back, check_strongest
from attnlab.exercises.patterns import check_layers_until_connected, check_window_mask
from attnlab.exercises.positions import (
    check_buckets,
    check_distance_biases,
    check_rotation,
    check_slowest_turn,
)
from attnlab.exercises.query_key import check_equal_lengths, check_moved_keys, check_top_share
from attnlab.exercises.reading import (
    check_arrival_share,
    check_arriving_shares,
    check_entropy,
    check_mean_ablation,
)
from attnlab.exercises.retrieval import (
    check_complete,
    check_energy,
    check_recalled,
    check_retrieve,
    check_sharp,
)
from attnlab.exercises.running import (
    check_cache_length,
    check_causal_chunk,
    check_delta_layer,
    check_running_step,
)
from attnlab.exercises.sets import (
    check_equal_pairs,
    check_log_likelihood,
    check_perceive,
    check_pool,
)
from attnlab.exercises.shared_work import (
    check_band,
    check_convolved_parameters,
    check_dynamic_layer,
    check_near_share,
)
from attnlab.exercises.sorting import (
    check_causal_sorting,
    check_recent_members,
    check_sorting_length,
)
from attnlab.exercises.sparse import (
    check_aligned,
    check_fixed_blocks,
    check_strided_keys,
    check_summaries,
)
from attnlab.exercises.sparse_rows import (
    check_entmax_attention,
    check_gap,
    check_soft_mask,
    check_sparsemax,
)
from attnlab.exercises.state_spaces import (
    check_convolved_piece,
    check_joined_spans,
    check_mode_half_life,
    check_mode_kernel,
    check_selective_layer,
    check_share_left,
)
from attnlab.exercises.states import (
    check_half_life,
    check_joined,
    check_push,
    check_time_mixing,
)
from attnlab.exercises.subwords import (
    check_byte_ids,
    check_calibrate,
    check_offset_subwords,
    check_table_width,
)
from attnlab.exercises.summaries import (
    check_block_means,
    check_transient,
    check_transient_keys,
    check_visible_slots,
)
from attnlab.exercises.survey_rows import check_growth, check_hash_length, check_survey_row
from attnlab.exercises.synthesizer import (
    check_dense_layer,
    check_factorized,
    check_mixture,
    check_table_length,
)
from attnlab.exercises.tiles import (
    check_merge,
    check_online_softmax,
    check_score_bytes,
    check_tiled_attention,
)
from attnlab.exercises.transformer import (
    check_decoder_layer,
    check_decoder_parameters,
    check_decoder_rows,
    check_layer_norm,
)
from attnlab.exercises.trees import (
    check_subtree_mask,
    check_tree_depths,
    check_tree_lstm,
    check_tree_node,
)
from attnlab.exercises.verdict import Verdict
from attnlab.exercises.vision import check_mean_by_offset, check_row_share, check_uniform_row
from attnlab.exercises.whole_model import (
    check_next_token_loss,
    check_training,
    check_whole_model,
)

__getattr__ = modules_of(__name__)

__all__ = [
    "Verdict",
    "check_aligned",
    "check_along_edges",
    "check_arrival_share",
    "check_arriving_shares",
    "check_associate",
    "check_attended_position",
    "check_attention",
    "check_attention_parameters",
    "check_axial_pairs",
    "check_axis",
    "check_backward",
    "check_band",
    "check_beaten",
    "check_bigbird",
    "check_block",
    "check_block_means",
    "check_block_states",
    "check_buckets",
    "check_byte_ids",
    "check_cache_bytes",
    "check_cache_length",
    "check_calibrate",
    "check_causal",
    "check_causal_chunk",
    "check_causal_performer",
    "check_causal_sorting",
    "check_cells",
    "check_chain_pairs",
    "check_clipped_rows",
    "check_collected_bytes",
    "check_complete",
    "check_complex_layer",
    "check_complex_score",
    "check_convolved_parameters",
    "check_convolved_piece",
    "check_copied",
    "check_decoder_layer",
    "check_decoder_parameters",
    "check_decoder_rows",
    "check_delta_layer",
    "check_dense_layer",
    "check_distance_biases",
    "check_dynamic_layer",
    "check_edge_attention",
    "check_embedding",
    "check_energy",
    "check_entmax_attention",
    "check_entropy",
    "check_equal_lengths",
    "check_equal_pairs",
    "check_etc_pairs",
    "check_exponent",
    "check_factorized",
    "check_fading",
    "check_far_part",
    "check_far_use",
    "check_fast_transform",
    "check_feature_count",
    "check_fetch",
    "check_fixed_blocks",
    "check_fnet_block",
    "check_follow",
    "check_front",
    "check_gap",
    "check_gated",
    "check_generator",
    "check_given_back",
    "check_graph_mask",
    "check_grouped_layer",
    "check_growth",
    "check_h3_layer",
    "check_h3_state",
    "check_half_life",
    "check_hartley",
    "check_hash_length",
    "check_heads_attend",
    "check_hop",
    "check_hyena_map",
    "check_incident",
    "check_index_ratio",
    "check_induction_head",
    "check_induction_keys",
    "check_joined",
    "check_joined_spans",
    "check_laplacian",
    "check_layer_norm",
    "check_layers_until_connected",
    "check_linear_order",
    "check_linformer_layer",
    "check_log_likelihood",
    "check_masked_softmax",
    "check_mean_ablation",
    "check_mean_by_offset",
    "check_mean_floor",
    "check_memory_layer",
    "check_merge",
    "check_merge_heads",
    "check_message_step",
    "check_mixture",
    "check_mode_half_life",
    "check_mode_kernel",
    "check_most_used",
    "check_moved_keys",
    "check_near_share",
    "check_neighbourhood",
    "check_network",
    "check_next_memory",
    "check_next_token_loss",
    "check_number",
    "check_offset_subwords",
    "check_online_softmax",
    "check_padded_mixing",
    "check_path_count",
    "check_path_weight",
    "check_perceive",
    "check_pool",
    "check_previous_share",
    "check_projected_keys",
    "check_projection_parameters",
    "check_push",
    "check_rank",
    "check_reach",
    "check_read",
    "check_readings",
    "check_recalled",
    "check_recent_members",
    "check_recovered",
    "check_repeat_heads",
    "check_retrieve",
    "check_ring_layers",
    "check_root_value",
    "check_rotation",
    "check_rounds",
    "check_row_share",
    "check_running_step",
    "check_score_bytes",
    "check_seed_chance",
    "check_selective_layer",
    "check_share_left",
    "check_sharp",
    "check_shift",
    "check_slowest_turn",
    "check_soft_mask",
    "check_soft_paths",
    "check_sorted_round",
    "check_sorting_length",
    "check_sparsemax",
    "check_split_heads",
    "check_stack",
    "check_standard_error",
    "check_state_numbers",
    "check_step",
    "check_stopwatch",
    "check_strided_keys",
    "check_strongest",
    "check_subtree_mask",
    "check_summaries",
    "check_survey_row",
    "check_table_length",
    "check_table_width",
    "check_tiled_attention",
    "check_time_crossing",
    "check_time_mixing",
    "check_token_count",
    "check_top_share",
    "check_training",
    "check_training_gain",
    "check_transform_flops",
    "check_transient",
    "check_transient_keys",
    "check_tree_depths",
    "check_tree_lstm",
    "check_tree_node",
    "check_uniform_row",
    "check_uniform_share",
    "check_unused_rows",
    "check_upward_average",
    "check_variance",
    "check_visible_slots",
    "check_wave",
    "check_whole_model",
    "check_window_mask",
    "check_without_key",
    "check_writer",
]
