"""The faults: a room, what stands there once, what takes its place.

A text is looked for in all files of its room, so that a fault survives when
its function moves to another file. `tests` are asked first; a fault that they
do not find goes through all tests of the room.
"""

import dataclasses
import pathlib

# Where the files of a room are, and its tests.
ROOMS = {
    "ops": ("lambdanet_tf/ops/**/*.py", ("tests/ops", "tests/layers")),
    "layers": ("lambdanet_tf/layers/*.py", ("tests/layers",)),
    "models": ("lambdanet_tf/models/**/*.py", ("tests/models",)),
    "specs": ("lambdanet_tf/specs/*.py", ("tests/specs", "tests/models")),
    "analysis": ("lambdanet_tf/analysis/*.py", ("tests/analysis",)),
    "streaming": ("lambdanet_tf/streaming/*.py", ("tests/streaming",)),
    "data": ("lambdanet_tf/data/*.py", ("tests/data",)),
    "training": ("lambdanet_tf/training/*.py", ("tests/training",)),
    "serving": ("lambdanet_tf/serving/*.py", ("tests/serving",)),
    "keras_hub": ("lambdanet_tf/keras_hub/*.py", ("tests/keras_hub",)),
    "commands": (
        "lambdanet_tf/*.py",
        ("tests/training", "tests/serving", "tests/project"),
    ),
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """A wrong change of one to five lines.

    Attributes:
        name: what is wrong.
        room: a key of `ROOMS`.
        old: a text that one file of the room holds once.
        new: what takes its place.
        tests: that are asked first.
    """

    name: str
    room: str
    old: str
    new: str
    tests: tuple[str, ...]

    def path_in(self, root):
        """The only file that holds the text, below the root of a tree."""
        paths = pathlib.Path(root).glob(ROOMS[self.room][0])
        texts = {path: path.read_text("utf-8") for path in sorted(paths)}
        found = [path for path, text in texts.items() if self.old in text]
        if len(found) != 1 or texts[found[0]].count(self.old) != 1:
            raise ValueError(
                f"{self.name}: its text must stand once in the room. Found "
                f"in: {found}."
            )
        return found[0]


def _faults(room, *rows):
    return [Fault(name, room, *row) for name, *row in rows]


FAULTS = [
    *_faults(
        "ops",
        (
            "a_query_may_see_one_position_more",
            "(entry >= 0) & (entry < self.taps)",
            "(entry >= 0) & (entry <= self.taps)",
            ("tests/ops/test_ops.py::test_relative_index",),
        ),
        (
            "a_crop_loses_its_last_entry",
            "table[tuple(slice(a.first, a.first + a.taps) for a in",
            "table[tuple(slice(a.first, a.first + a.taps - 1) for a in",
            ("tests/ops/test_ops.py::test_relative_index",),
        ),
        (
            "a_strided_window_begins_one_position_late",
            "if stride == 1 else total // 2",
            "if stride == 1 else (total + 1) // 2",
            ("tests/ops/test_ops.py::test_same_geometry_as_tensorflow",),
        ),
        (
            "the_scope_is_mirrored",
            "- self.stride * tf.range(self.queries)[:, None]",
            "+ self.stride * tf.range(self.queries)[:, None]",
            ("tests/ops/test_ops.py::test_relative_index",),
        ),
        (
            "valid_padding_drops_the_last_query",
            "queries = ceil_div(context - span + 1, stride)",
            "queries = ceil_div(context - span, stride)",
            ("tests/ops/test_ops.py::test_relative_index",),
        ),
        (
            "a_causal_query_sees_the_next_position",
            "queries, taps, 0, stride, dilation, dilation * (taps - 1)",
            "queries, taps, 0, stride, dilation, dilation * (taps - 2)",
            ("tests/ops/test_ops.py::test_relative_index",),
        ),
        (
            "keys_are_normalized_with_their_padding",
            "tf.nn.softmax(masked_fill(wide, context_mask, MASKED_LOGIT))",
            "tf.nn.softmax(wide)",
            (
                "tests/ops/test_properties.py::test_padded_sequence_equals_the_short_one",
            ),
        ),
        (
            "padded_keys_keep_their_numbers",
            "    wide = masked_fill(wide, context_mask)\n",
            "",
            (
                "tests/ops/test_properties.py::test_padded_sequence_equals_the_short_one",
                "tests/layers/test_padding.py::test_padding_stays_padding",
            ),
        ),
        (
            "unit_length_is_a_sum_of_one",
            "tf.math.rsqrt(tf.maximum(energy, _TINY))",
            "1.0 / tf.maximum(energy, _TINY)",
            ("tests/ops/test_ops.py::test_content_lambda",),
        ),
        (
            "the_padding_of_queries_hides_the_context",
            "tf.expand_dims(masks.permitted, 1)\n        outputs",
            "tf.expand_dims(masks.permitted, 2)\n        outputs",
            ("tests/ops/test_properties.py::test_mask_kinds_agree",),
        ),
        (
            "the_past_excludes_the_present",
            "tf.linalg.band_part(mask, -1, 0)",
            "tf.linalg.band_part(mask, -1, 0) & ~tf.eye(n, m, dtype=tf.bool)",
            (
                "tests/layers/test_layers.py::test_any_layer_equals_the_reference",
            ),
        ),
        (
            "heads_share_the_mask_of_the_first",
            "attention=(self.attention[head],)",
            "attention=(self.attention[0],)",
            ("tests/layers/test_mask_shapes.py::test_every_shape",),
        ),
        (
            "the_bias_of_positions_is_subtracted",
            "return outputs + tf.cast(read, queries.dtype)",
            "return outputs - tf.cast(read, queries.dtype)",
            (
                "tests/layers/test_layers.py::test_any_layer_equals_the_reference",
            ),
        ),
        (
            "a_batch_without_examples_moves_the_table",
            "if tf.is_tensor(examples) or not examples:",
            "if False:",
            ("tests/ops/test_engine.py::test_no_examples_move_no_table",),
        ),
        (
            "spectra_are_not_conjugated",
            "tf.math.conj(tf.signal.rfft(kernel))",
            "tf.signal.rfft(kernel)",
            (
                "tests/ops/test_engine.py::test_algorithms_are_the_same_function",
            ),
        ),
        (
            "a_transform_is_too_short",
            "return 2 ** (points - 1).bit_length()",
            "return 2 ** (points - 1).bit_length() // 2",
            (
                "tests/ops/test_engine.py::test_algorithms_are_the_same_function",
            ),
        ),
        (
            "a_row_that_no_pair_reads_is_read",
            "tf.where(index < 0, rows.shape[0] - 1, index)",
            "tf.maximum(index, 0)",
            (
                "tests/ops/test_engine.py::test_algorithms_are_the_same_function",
            ),
        ),
    ),
    *_faults(
        "layers",
        (
            "attention_forgets_the_scale_of_its_queries",
            "queries *= self.key_depth**-0.5",
            "queries *= 1.0",
            ("tests/layers/test_layers.py::test_single_precision",),
        ),
        (
            "averages_move_by_the_momentum",
            "share = tf.minimum(count, 1.0 - self.momentum)",
            "share = tf.minimum(count, self.momentum)",
            (
                "tests/layers/test_batch_normalization.py::test_values_and_averages",
            ),
        ),
        (
            "the_variance_is_that_of_a_sample",
            "variance * (count - 1.0) / count, 0.0)",
            "variance, 0.0)",
            (
                "tests/layers/test_batch_normalization.py::test_it_is_one_operation_where_there_is_one",
                "tests/layers/test_batch_normalization.py::test_values_and_averages",
            ),
        ),
        (
            "padding_counts_in_the_statistics",
            "x = x if mask is None else tf.where(mask, x, 0.0)",
            "x = x",
            (
                "tests/layers/test_batch_normalization.py::test_padding_may_be_anything",
            ),
        ),
        (
            "inference_normalizes_by_the_batch",
            "queries, training=training, mask=masks.query",
            "queries, training=True, mask=masks.query",
            ("tests/layers/test_layers.py::test_single_precision",),
        ),
        (
            "values_are_normalized_with_the_mask_of_queries",
            "values, training=training, mask=masks.context",
            "values, training=training, mask=masks.query",
            (
                "tests/layers/test_mask_shapes.py",
                "tests/layers/test_layers.py::test_any_layer_equals_the_reference",
            ),
        ),
        (
            "queries_are_normalized_over_the_heads",
            "tf.cast(tf.nn.softmax(wide), queries.dtype)",
            "tf.cast(tf.nn.softmax(wide, axis=-2), queries.dtype)",
            (
                "tests/layers/test_layers.py::test_any_layer_equals_the_reference",
            ),
        ),
        (
            "the_bias_of_positions_is_frozen",
            "initializer=self._initializers(self.position_bias_initializer),\n"
            "                trainable=True,",
            "initializer=self._initializers(self.position_bias_initializer),\n"
            "                trainable=False,",
            (
                "tests/layers/test_conformance.py::test_every_trainable_weight_has_a_gradient",
            ),
        ),
        (
            "embeddings_are_initialized_too_small",
            "tf.keras.initializers.RandomNormal(stddev=1.0)",
            "tf.keras.initializers.RandomNormal(stddev=0.02)",
            (
                "tests/layers/test_layer_weights.py::test_initial_weights_are_the_papers",
            ),
        ),
        (
            "queries_are_initialized_too_large",
            "query_scale=1.0 / self.key_dim,",
            "query_scale=1.0,",
            (
                "tests/layers/test_layer_weights.py::test_initial_weights_are_the_papers",
            ),
        ),
        (
            "a_global_table_lacks_its_last_entry",
            "return tuple(2 * size - 1 for size in grid)",
            "return tuple(2 * size - 2 for size in grid)",
            (
                "tests/layers/test_layer_weights.py::test_weights_have_the_documented_shapes",
            ),
        ),
        (
            "a_gate_is_a_sum_over_the_map",
            "gates = tf.reduce_mean(wide, axes)",
            "gates = tf.reduce_sum(wide, axes)",
            ("tests/layers/test_small_layers.py::test_squeeze_excite_by_hand",),
        ),
        (
            "kernels_of_projections_are_not_regularized",
            "            kernel_regularizer=self.kernel_regularizer,\n"
            "            kernel_constraint=self.kernel_constraint,",
            "            kernel_constraint=self.kernel_constraint,",
            (
                "tests/layers/test_layer_weights.py::test_regularizers_and_constraints",
            ),
        ),
        (
            "the_epsilon_of_the_norms_is_the_default",
            "            epsilon=self.norm_epsilon,\n",
            "",
            (
                "tests/layers/test_layers.py::test_any_layer_equals_the_reference",
            ),
        ),
    ),
    *_faults(
        "models",
        (
            "the_branch_is_subtracted",
            'tf.keras.layers.Add(name=f"{name}_add")([residual, x])',
            'tf.keras.layers.Subtract(name=f"{name}_add")([residual, x])',
            (
                "tests/models/test_resnet.py::test_hybrid_block_is_the_paper_in_numpy",
            ),
        ),
        (
            "a_branch_begins_at_one",
            "activate=False, zero_gamma=True",
            "activate=False, zero_gamma=False",
            (
                "tests/models/test_resnet.py::test_residual_branches_are_zero_at_the_start",
            ),
        ),
        (
            "the_shortcut_has_an_activation",
            "filters, 1, name, strides, activate=False)",
            "filters, 1, name, strides, activate=True)",
            (
                "tests/models/test_resnet.py::test_hybrid_block_is_the_paper_in_numpy",
            ),
        ),
        (
            "axial_attention_goes_along_the_width_twice",
            "x = _attention(x, block.width, height, block, axis=1)",
            "x = _attention(x, block.width, height, block, axis=2)",
            (
                "tests/models/test_attention_networks.py::test_blocks_are_the_papers_in_numpy",
            ),
        ),
        (
            "a_convolution_leaves_no_room_for_attention",
            "x, width - values, 3,",
            "x, width, 3,",
            (
                "tests/models/test_attention_networks.py::test_blocks_are_the_papers_in_numpy",
            ),
        ),
        (
            "images_are_not_scaled_by_their_deviation",
            "return images * tf.constant(scale) + tf.constant(offset)",
            "return images + tf.constant(offset)",
            (
                "tests/models/test_resnet.py::test_preprocessing_inside_equals_outside",
            ),
        ),
        (
            "images_are_normalized_in_half_precision",
            'scale, offset, dtype="float32", name=PREPROCESSING',
            "scale, offset, name=PREPROCESSING",
            (
                "tests/models/test_resnet.py::test_images_are_normalized_in_single_precision",
            ),
        ),
    ),
    *_faults(
        "specs",
        (
            "a_lambda_block_of_a_hybrid_is_one_too_early",
            '"L" if i + 1 in row.lambda_blocks_c4',
            '"L" if i in row.lambda_blocks_c4',
            ("tests/specs/test_specs.py::test_hybrid_positions_of_the_paper",),
        ),
        (
            "the_stem_strides_once_too_little",
            "stem_strides=(2, 1, 1, 2),",
            "stem_strides=(2, 1, 1, 1),",
            ("tests/specs/test_specs.py::test_total_stride",),
        ),
        (
            "se_is_in_every_stage",
            "        se_stages=(2, 3),\n",
            "",
            ("tests/models/test_resnet.py::test_exact_parameters",),
        ),
        (
            "the_smallest_run_is_recommended",
            "if row.depth == depth][-1]",
            "if row.depth == depth][0]",
            (
                "tests/specs/test_specs.py::test_recommendations_are_those_of_the_largest_run",
            ),
        ),
        (
            "the_first_block_of_the_mobilenet_is_wide",
            "InvertedRow(1, 16, 1, 1),",
            "InvertedRow(6, 16, 1, 1),",
            ("tests/models/test_resnet.py::test_exact_parameters",),
        ),
    ),
    *_faults(
        "analysis",
        (
            "a_product_is_one_operation",
            "return 2 * math.prod(operation.outputs[0].shape) * inner",
            "return math.prod(operation.outputs[0].shape) * inner",
            (
                "tests/analysis/test_analysis.py::test_executed_operations_of_a_layer",
            ),
        ),
        (
            "the_share_of_content_is_that_of_positions",
            "return squares[0] / sum(squares) if any",
            "return squares[1] / sum(squares) if any",
            (
                "tests/analysis/test_learned.py::test_parts_add_up",
                "tests/analysis/test_learned.py::test_a_part_that_is_off_is_zero",
            ),
        ),
        (
            "a_receptive_field_is_that_of_a_corner",
            "return tuple(size // 2 for size in grid)",
            "return tuple(0 for size in grid)",
            (
                "tests/analysis/test_learned.py::test_parts_have_fields_of_their_own",
            ),
        ),
        (
            "the_last_examples_are_left_out",
            "x = _floating(inputs[begin : begin + _BATCH])",
            "x = _floating(inputs[begin : begin + _BATCH - 1])",
            (
                "tests/analysis/test_learned.py::test_every_example_counts_however_many_are_computed_at_once",
            ),
        ),
        (
            "executed_operations_are_those_of_the_batch",
            "traced.get(layer.name, 0) // batch",
            "traced.get(layer.name, 0)",
            (
                "tests/analysis/test_analysis.py::test_executed_operations_of_a_layer",
                "tests/analysis/test_analysis.py::test_executed_operations_of_a_network",
            ),
        ),
    ),
    *_faults(
        "data",
        (
            "every_pass_has_the_order_of_the_first",
            "seed=tf.stack([first, seeds, passes], axis=1)",
            "seed=tf.stack([first, seeds, passes * 0], axis=1)",
            (
                "tests/data/test_data.py::test_every_pass_has_each_image_once_in_an_order_of_its_own",
            ),
        ),
        (
            "a_stream_is_resumed_one_image_late",
            "Dataset.range(start + shard.index, end, shard.count)",
            "Dataset.range(start + 1 + shard.index, end, shard.count)",
            (
                "tests/data/test_data.py::test_streams_are_those_that_were_recorded",
            ),
        ),
        (
            "a_shuffle_never_draws_the_last_image",
            "max_index=np.int64(self.num_images - 1)",
            "max_index=np.int64(self.num_images - 2)",
            (
                "tests/data/test_data.py::test_streams_are_those_that_were_recorded",
            ),
        ),
        (
            "labels_above_the_last_class_pass",
            "(label >= 0) & (label < self.num_classes)",
            "(label >= 0)",
            (
                "tests/data/test_data_sets.py::test_a_stray_label_is_a_bad_image_that_says_so",
            ),
        ),
        (
            "images_are_mixed_with_the_other_neighbor",
            "share * values + (1.0 - share) * tf.roll(values, -1, axis=0)",
            "share * values + (1.0 - share) * tf.roll(values, 1, axis=0)",
            (
                "tests/data/test_augment.py::test_labels_are_weighted_as_the_pixels_are",
            ),
        ),
        (
            "a_cut_box_is_of_the_other_neighbor",
            "tf.where(box[..., tf.newaxis], tf.roll(images, -1, axis=0)",
            "tf.where(box[..., tf.newaxis], tf.roll(images, 1, axis=0)",
            ("tests/data/test_augment.py::test_cutmix_is_a_box",),
        ),
        (
            "images_are_turned_by_degrees_as_radians",
            "angle = draws[0] * (rotation * np.pi / 180)",
            "angle = draws[0] * rotation",
            (
                "tests/data/test_augment.py::test_random_affine_turns_by_so_many_degrees_at_most",
            ),
        ),
        (
            "a_crop_takes_columns_for_rows",
            "return self._array[top : top + height, left : left + width]",
            "return self._array[left : left + height, top : top + width]",
            (
                "tests/data/test_augment.py::test_random_crop_is_a_box_of_the_image",
            ),
        ),
        (
            "width_and_height_of_a_png_are_exchanged",
            "tf.reduce_sum(digits * places, axis=1)[::-1]",
            "tf.reduce_sum(digits * places, axis=1)",
            (
                "tests/data/test_augment.py::test_a_box_of_a_file_is_the_box_of_its_pixels",
                "tests/data/test_data.py",
            ),
        ),
        (
            "shards_of_files_overlap",
            "order = order[shard.index :: shard.count]",
            "order = order[:: shard.count]",
            (
                "tests/data/test_data.py::test_shards_of_files_resume_and_divide_the_images",
            ),
        ),
    ),
    *_faults(
        "training",
        (
            "the_rate_is_one_step_off",
            "rising = step / self.warmup_steps",
            "rising = (step + 1.0) / self.warmup_steps",
            ("tests/training/test_schedule.py",),
        ),
        (
            "the_cosine_forgets_the_warmup",
            "length = max(self.num_steps - self.warmup_steps, 1)",
            "length = max(self.num_steps, 1)",
            ("tests/training/test_schedule.py",),
        ),
        (
            "the_rate_is_not_scaled_by_the_batch",
            "peak = peak * recipe.batch_size / recipe.base_batch_size",
            "peak = peak * 1",
            ("tests/training/test_schedule.py",),
        ),
        (
            "averages_move_towards_themselves",
            "average.assign_sub(rate * (average - value))",
            "average.assign_add(rate * (average - value))",
            (
                "tests/training/test_optim.py::test_averages_follow_their_formula",
            ),
        ),
        (
            "averages_are_slow_from_the_start",
            "tf.minimum(self.decay, (1.0 + updates) / (10.0 + updates))",
            "tf.constant(self.decay)",
            (
                "tests/training/test_optim.py::test_averages_follow_their_formula",
            ),
        ),
        (
            "a_checkpoint_has_no_averages",
            "            averages=self._averages,\n",
            "",
            (
                "tests/training/test_state.py::test_a_checkpoint_brings_everything_back",
            ),
        ),
        (
            "a_tie_is_no_new_best",
            'score >= self.best["score"]',
            'score > self.best["score"]',
            (
                "tests/training/test_state.py::test_of_equally_good_epochs_the_latest_is_the_best",
            ),
        ),
        (
            "weights_that_are_not_finite_are_saved",
            "        self.check_weights()\n        now =",
            "        now =",
            (
                "tests/training/test_state.py::test_weights_that_are_not_finite_are_never_saved",
            ),
        ),
        (
            "one_checkpoint_more_is_kept",
            "for old in older[_MAX_TO_KEEP:]:",
            "for old in older[_MAX_TO_KEEP + 1 :]:",
            ("tests/training/test_state.py::test_old_checkpoints_are_removed",),
        ),
        (
            "every_replica_adds_the_whole_penalty",
            "loss + penalty / replicas",
            "loss + penalty",
            (
                "tests/training/test_optim.py::test_a_penalty_counts_once_for_each_batch",
            ),
        ),
        (
            "replicas_draw_the_same_numbers",
            "number = step * context.num_replicas_in_sync + tf.cast(",
            "number = step * context.num_replicas_in_sync + 0 * tf.cast(",
            ("tests/training/test_training_randomness.py",),
        ),
        (
            "a_lost_image_is_not_missed",
            "if sums[3] + sums[4] != source.num_images:",
            "if sums[3] + sums[4] > source.num_images:",
            (
                "tests/training/test_batches.py",
                "tests/training/test_tpu.py",
                "tests/training/test_training.py",
            ),
        ),
        (
            "smoothing_reaches_the_evaluation",
            "            cross_entropy(labels, logits),\n",
            "            cross_entropy(labels, logits, 0.1),\n",
            (
                "tests/training/test_training.py::test_the_reported_accuracy_is_that_of_the_written_weights",
            ),
        ),
        (
            "ties_count_as_right",
            "not_below = tf.logical_not(logits < own[:, tf.newaxis])",
            "not_below = tf.logical_not(logits <= own[:, tf.newaxis])",
            (
                "tests/training/test_training.py::test_ties_and_nan_count_as_wrong",
            ),
        ),
        (
            "the_trained_weights_are_validated",
            "    with state.averages.applied():\n        metrics, bad = {}, 0",
            "    with contextlib.nullcontext():\n        metrics, bad = {}, 0",
            (
                "tests/training/test_training.py::test_a_stopped_run_ends_as_if_it_had_not_been",
            ),
        ),
        (
            "a_failed_run_is_not_recorded",
            'run.write("failed", {**run.former_metrics, "reason": reason})',
            "pass",
            (
                "tests/training/test_training.py::test_a_loss_that_is_not_finite_names_the_good_weights",
            ),
        ),
    ),
    *_faults(
        "serving",
        (
            "a_folded_bias_is_not_scaled",
            "copy.set_weights([kernel, shift + scale * bias])",
            "copy.set_weights([kernel, shift + bias])",
            (
                "tests/serving/test_folding.py::test_a_norm_disappears_into_the_linear_layer_before_it",
            ),
        ),
        (
            "folding_forgets_the_mean",
            "return scale, beta - scale * _array(norm.moving_mean)",
            "return scale, beta - _array(norm.moving_mean)",
            (
                "tests/serving/test_folding.py::test_a_norm_disappears_into_the_linear_layer_before_it",
            ),
        ),
        (
            "folding_forgets_the_bias_of_positions",
            "        copy.position_bias.assign(layer.position_bias)",
            "        pass",
            (
                "tests/serving/test_folding.py::test_lambda_layers_of_every_kind",
            ),
        ),
        (
            "a_norm_that_two_layers_read_is_folded",
            "readers.get(id(layer.output), [])) == 1\n",
            "readers.get(id(layer.output), [])) >= 1\n",
            (
                "tests/serving/test_folding.py::test_what_somebody_else_reads_keeps_its_norm",
            ),
        ),
        (
            "an_export_has_no_bias",
            "copy.set_weights([kernel, shift + scale * bias])",
            "copy.set_weights([kernel, shift])",
            (
                "tests/serving/test_folding.py::test_a_norm_disappears_into_the_linear_layer_before_it",
            ),
        ),
        (
            "images_are_not_clipped",
            "return tf.clip_by_value(images, 0.0, 255.0)",
            "return tf.clip_by_value(images, 0.0, 256.0)",
            (
                "tests/serving/test_hostile.py::test_pixels_outside_the_range_count_as_its_ends",
            ),
        ),
        (
            "one_of_two_classes_has_its_own_score",
            "return tf.concat([1.0 - probabilities, probabilities], axis=-1)",
            "return tf.concat([probabilities, 1.0 - probabilities], axis=-1)",
            (
                "tests/serving/test_activation.py::test_one_logit_is_served_through_a_sigmoid",
            ),
        ),
        (
            "labels_are_numbered_from_one",
            "self.labels.lookup(tf.cast(indices, tf.int64))",
            "self.labels.lookup(tf.cast(indices, tf.int64) + 1)",
            (
                "tests/serving/test_signatures.py::test_all_signatures_agree_on_the_same_pixels",
                "tests/serving/test_verify.py::test_an_export_agrees_with_keras_without_keras",
            ),
        ),
        (
            "a_changed_file_is_not_noticed",
            "if found.get(name) != checksum",
            "if name not in found",
            ("tests/serving/test_verify.py::test_one_byte_is_noticed",),
        ),
        (
            "infinite_pixels_are_answered",
            "tf.reduce_all(tf.math.is_finite(images), axis=[1, 2, 3])",
            "tf.reduce_all(~tf.math.is_nan(images), axis=[1, 2, 3])",
            (
                "tests/serving/test_hostile.py::test_an_image_that_is_not_finite_is_named",
            ),
        ),
    ),
    *_faults(
        "commands",
        (
            "the_newest_run_is_the_oldest",
            "return max(found, key=lambda run: (run.started, run.folder))",
            "return min(found, key=lambda run: (run.started, run.folder))",
            (
                "tests/training/test_runs.py::test_the_newest_run_began_last_whatever_it_is_called",
            ),
        ),
        (
            "a_resumed_run_begins_now",
            'began = self.read().started if self.exists() else ""',
            'began = ""',
            (
                "tests/training/test_runs.py",
                "tests/training/test_training.py",
            ),
        ),
        (
            "an_unfinished_run_is_exported",
            'if self.status != "finished":\n            raise',
            'if self.status == "failed":\n            raise',
            (
                "tests/training/test_training.py::test_a_stopped_run_ends_as_if_it_had_not_been",
                "tests/serving/test_export.py::test_foreign_and_unfinished_runs_are_rejected",
            ),
        ),
        (
            "an_error_of_writing_is_swallowed",
            'raise FileError(f"Cannot write {path}: {reason(error)}.") '
            "from error",
            "pass",
            (
                "tests/training/test_runs.py::test_a_failed_write_keeps_the_former_file",
            ),
        ),
        (
            "a_lock_is_not_taken",
            "fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)",
            "fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)",
            (
                "tests/training/test_runs.py::test_one_process_trains_in_a_folder",
            ),
        ),
        (
            "bounds_are_not_checked",
            "        _check_bounds(each.name, value, each.metadata)\n",
            "",
            ("tests/training/test_recipes.py::test_what_is_refused",),
        ),
        (
            "an_unknown_field_is_ignored",
            "return dataclasses.replace(instance, **changes)",
            "return dataclasses.replace(instance)",
            (
                "tests/training/test_recipes.py::test_a_change_wins_over_table_20",
            ),
        ),
    ),
    *_faults(
        "streaming",
        (
            "a_window_keeps_its_oldest_inputs",
            'state = {"inputs": x[:, length:]}',
            'state = {"inputs": x[:, : self._window]}',
            ("tests/streaming/test_steps.py",),
        ),
        (
            "a_streamed_convolution_has_no_bias",
            "outputs += tf.cast(bias, x.dtype)",
            "outputs += 0 * tf.cast(bias, x.dtype)",
            ("tests/streaming/test_steps.py",),
        ),
        (
            "a_stream_normalizes_by_its_piece",
            'kwargs["training"] = False',
            'kwargs["training"] = True',
            ("tests/streaming/test_steps.py",),
        ),
        (
            "all_tokens_are_drawn_with_one_seed",
            "[seed, place], tf.int32",
            "[seed, 0 * place], tf.int32",
            ("tests/streaming/test_generation.py",),
        ),
        (
            "probabilities_are_taken_for_logits",
            "logits = tf.math.log(logits)",
            "logits = tf.identity(logits)",
            ("tests/streaming/test_generation.py",),
        ),
    ),
    *_faults(
        "keras_hub",
        (
            "a_dtype_is_not_obeyed",
            "keras.config.set_dtype_policy(keras.dtype_policies.get(dtype))",
            "pass",
            (
                "tests/keras_hub/test_backbone.py::test_precision_is_that_of_dtype",
            ),
        ),
        (
            "a_weight_file_is_not_read",
            "weights=weights,",
            "weights=None,",
            (
                "tests/keras_hub/test_backbone.py::test_begins_from_a_weight_file",
            ),
        ),
        (
            "a_head_is_an_argument",
            'heads = {"include_top", "pooling", "endpoints", "classes"}',
            "heads = set()",
            ("tests/keras_hub/test_backbone.py::test_arguments_are_checked",),
        ),
        (
            "a_saved_backbone_forgets_its_arguments",
            "in arguments.items()},",
            "in ()},",
            (
                "tests/keras_hub/test_backbone.py::test_a_preset_is_saved_and_loaded",
            ),
        ),
        (
            "a_backbone_has_no_pyramid",
            "self.pyramid_outputs = model.pyramid_outputs",
            "self.pyramid_outputs = {}",
            ("tests/keras_hub/test_backbone.py",),
        ),
    ),
]
