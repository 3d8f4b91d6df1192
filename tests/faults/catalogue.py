"""The faults: a room, what stands there once, what takes its place.

A text is looked for in all files of its room, so that a fault survives when
its function moves to another file. The test that has caught it, by the page,
is asked first; what that does not find goes through all tests of the room.
"""

import dataclasses
import pathlib
import re

PAGE = pathlib.Path(__file__).with_name("README.md")

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

# By room, as a diff shows them: a name, what goes and what comes, parts of
# lines or lines. Where nothing comes, whole lines go.
CHANGES = {
    "ops": r"""
a_query_may_see_one_position_more
-(entry >= 0) & (entry < self.taps)
+(entry >= 0) & (entry <= self.taps)
a_crop_loses_its_last_entry
-table[tuple(slice(a.first, a.first + a.taps) for a in
+table[tuple(slice(a.first, a.first + a.taps - 1) for a in
a_strided_window_begins_one_position_late
-if stride == 1 else total // 2
+if stride == 1 else (total + 1) // 2
the_scope_is_mirrored
-- self.stride * tf.range(self.queries)[:, None]
++ self.stride * tf.range(self.queries)[:, None]
valid_padding_drops_the_last_query
-queries = ceil_div(context - span + 1, stride)
+queries = ceil_div(context - span, stride)
a_causal_query_sees_the_next_position
-queries, taps, 0, stride, dilation, dilation * (taps - 1)
+queries, taps, 0, stride, dilation, dilation * (taps - 2)
keys_are_normalized_with_their_padding
-tf.nn.softmax(masked_fill(wide, context_mask, MASKED_LOGIT))
+tf.nn.softmax(wide)
padded_keys_keep_their_numbers
-    wide = masked_fill(wide, context_mask)
unit_length_is_a_sum_of_one
-tf.math.rsqrt(tf.maximum(energy, _TINY))
+1.0 / tf.maximum(energy, _TINY)
the_padding_of_queries_hides_the_context
-tf.expand_dims(masks.permitted, 1)
-        outputs
+tf.expand_dims(masks.permitted, 2)
+        outputs
the_past_excludes_the_present
-tf.linalg.band_part(mask, -1, 0)
+tf.linalg.band_part(mask, -1, 0) & ~tf.eye(n, m, dtype=tf.bool)
heads_share_the_mask_of_the_first
-attention=(self.attention[head],)
+attention=(self.attention[0],)
the_bias_of_positions_is_subtracted
-return outputs + tf.cast(read, queries.dtype)
+return outputs - tf.cast(read, queries.dtype)
a_batch_without_examples_moves_the_table
-if tf.is_tensor(examples) or not examples:
+if False:
spectra_are_not_conjugated
-tf.math.conj(tf.signal.rfft(kernel))
+tf.signal.rfft(kernel)
a_transform_is_too_short
-return 2 ** (points - 1).bit_length()
+return 2 ** (points - 1).bit_length() // 2
a_row_that_no_pair_reads_is_read
-tf.where(index < 0, rows.shape[0] - 1, index)
+tf.maximum(index, 0)
""",
    "layers": r"""
attention_forgets_the_scale_of_its_queries
-queries *= self.key_depth**-0.5
+queries *= 1.0
averages_move_by_the_momentum
-share = tf.minimum(count, 1.0 - self.momentum)
+share = tf.minimum(count, self.momentum)
the_variance_is_that_of_a_sample
-variance * (count - 1.0) / count, 0.0)
+variance, 0.0)
padding_counts_in_the_statistics
-x = x if mask is None else tf.where(mask, x, 0.0)
+x = x
inference_normalizes_by_the_batch
-queries, training=training, mask=masks.query
+queries, training=True, mask=masks.query
values_are_normalized_with_the_mask_of_queries
-values, training=training, mask=masks.context
+values, training=training, mask=masks.query
queries_are_normalized_over_the_heads
-tf.cast(tf.nn.softmax(wide), queries.dtype)
+tf.cast(tf.nn.softmax(wide, axis=-2), queries.dtype)
the_bias_of_positions_is_frozen
-initializer=self._initializers(self.position_bias_initializer),
-                trainable=True,
+initializer=self._initializers(self.position_bias_initializer),
+                trainable=False,
embeddings_are_initialized_too_small
-tf.keras.initializers.RandomNormal(stddev=1.0)
+tf.keras.initializers.RandomNormal(stddev=0.02)
queries_are_initialized_too_large
-query_scale=1.0 / self.key_dim,
+query_scale=1.0,
a_global_table_lacks_its_last_entry
-return tuple(2 * size - 1 for size in grid)
+return tuple(2 * size - 2 for size in grid)
a_gate_is_a_sum_over_the_map
-gates = tf.reduce_mean(wide, axes)
+gates = tf.reduce_sum(wide, axes)
kernels_of_projections_are_not_regularized
-            kernel_regularizer=self.kernel_regularizer,
-            kernel_constraint=self.kernel_constraint,
+            kernel_constraint=self.kernel_constraint,
the_epsilon_of_the_norms_is_the_default
-            epsilon=self.norm_epsilon,
""",
    "models": r"""
the_branch_is_subtracted
-tf.keras.layers.Add(name=f"{name}_add")([residual, x])
+tf.keras.layers.Subtract(name=f"{name}_add")([residual, x])
a_branch_begins_at_one
-activate=False, zero_gamma=True
+activate=False, zero_gamma=False
the_shortcut_has_an_activation
-filters, 1, name, strides, activate=False)
+filters, 1, name, strides, activate=True)
axial_attention_goes_along_the_width_twice
-x = _attention(x, block.width, height, block, axis=1)
+x = _attention(x, block.width, height, block, axis=2)
a_convolution_leaves_no_room_for_attention
-x, width - values, 3,
+x, width, 3,
images_are_not_scaled_by_their_deviation
-return images * tf.constant(scale) + tf.constant(offset)
+return images + tf.constant(offset)
images_are_normalized_in_half_precision
-scale, offset, dtype="float32", name=PREPROCESSING
+scale, offset, name=PREPROCESSING
""",
    "specs": r"""
a_lambda_block_of_a_hybrid_is_one_too_early
-"L" if i + 1 in row.lambda_blocks_c4
+"L" if i in row.lambda_blocks_c4
the_stem_strides_once_too_little
-stem_strides=(2, 1, 1, 2),
+stem_strides=(2, 1, 1, 1),
se_is_in_every_stage
-        se_stages=(2, 3),
the_smallest_run_is_recommended
-if row.depth == depth][-1]
+if row.depth == depth][0]
the_first_block_of_the_mobilenet_is_wide
-InvertedRow(1, 16, 1, 1),
+InvertedRow(6, 16, 1, 1),
""",
    "analysis": r"""
a_product_is_one_operation
-return 2 * math.prod(operation.outputs[0].shape) * inner
+return math.prod(operation.outputs[0].shape) * inner
the_share_of_content_is_that_of_positions
-return squares[0] / sum(squares) if any
+return squares[1] / sum(squares) if any
a_receptive_field_is_that_of_a_corner
-return tuple(size // 2 for size in grid)
+return tuple(0 for size in grid)
the_last_examples_are_left_out
-x = _floating(inputs[begin : begin + _BATCH])
+x = _floating(inputs[begin : begin + _BATCH - 1])
executed_operations_are_those_of_the_batch
-traced.get(layer.name, 0) // batch
+traced.get(layer.name, 0)
""",
    "data": r"""
every_pass_has_the_order_of_the_first
-seed=tf.stack([first, seeds, passes], axis=1)
+seed=tf.stack([first, seeds, passes * 0], axis=1)
a_stream_is_resumed_one_image_late
-Dataset.range(start + shard.index, end, shard.count)
+Dataset.range(start + 1 + shard.index, end, shard.count)
a_shuffle_never_draws_the_last_image
-max_index=np.int64(self.num_images - 1)
+max_index=np.int64(self.num_images - 2)
labels_above_the_last_class_pass
-(label >= 0) & (label < self.num_classes)
+(label >= 0)
images_are_mixed_with_the_other_neighbor
-share * values + (1.0 - share) * tf.roll(values, -1, axis=0)
+share * values + (1.0 - share) * tf.roll(values, 1, axis=0)
a_cut_box_is_of_the_other_neighbor
-tf.where(box[..., tf.newaxis], tf.roll(images, -1, axis=0)
+tf.where(box[..., tf.newaxis], tf.roll(images, 1, axis=0)
images_are_turned_by_degrees_as_radians
-angle = draws[0] * (rotation * np.pi / 180)
+angle = draws[0] * rotation
a_crop_takes_columns_for_rows
-return self._array[top : top + height, left : left + width]
+return self._array[left : left + height, top : top + width]
width_and_height_of_a_png_are_exchanged
-tf.reduce_sum(digits * places, axis=1)[::-1]
+tf.reduce_sum(digits * places, axis=1)
shards_of_files_overlap
-order = order[shard.index :: shard.count]
+order = order[:: shard.count]
""",
    "training": r"""
the_rate_is_one_step_off
-rising = step / self.warmup_steps
+rising = (step + 1.0) / self.warmup_steps
the_cosine_forgets_the_warmup
-length = max(self.num_steps - self.warmup_steps, 1)
+length = max(self.num_steps, 1)
the_rate_is_not_scaled_by_the_batch
-peak = peak * recipe.batch_size / recipe.base_batch_size
+peak = peak * 1
averages_move_towards_themselves
-average.assign_sub(rate * (average - value))
+average.assign_add(rate * (average - value))
averages_are_slow_from_the_start
-tf.minimum(self.decay, (1.0 + updates) / (10.0 + updates))
+tf.constant(self.decay)
a_checkpoint_has_no_averages
-            averages=self._averages,
a_tie_is_no_new_best
-score >= self.best["score"]
+score > self.best["score"]
weights_that_are_not_finite_are_saved
-        self.check_weights()
-        now =
+        now =
one_checkpoint_more_is_kept
-for old in older[_MAX_TO_KEEP:]:
+for old in older[_MAX_TO_KEEP + 1 :]:
every_replica_adds_the_whole_penalty
-loss + penalty / replicas
+loss + penalty
replicas_draw_the_same_numbers
-number = step * context.num_replicas_in_sync + tf.cast(
+number = step * context.num_replicas_in_sync + 0 * tf.cast(
a_lost_image_is_not_missed
-if sums[3] + sums[4] != source.num_images:
+if sums[3] + sums[4] > source.num_images:
smoothing_reaches_the_evaluation
-            cross_entropy(labels, logits),
+            cross_entropy(labels, logits, 0.1),
ties_count_as_right
-not_below = tf.logical_not(logits < own[:, tf.newaxis])
+not_below = tf.logical_not(logits <= own[:, tf.newaxis])
the_trained_weights_are_validated
-    with state.averages.applied():
-        metrics, bad = {}, 0
+    with contextlib.nullcontext():
+        metrics, bad = {}, 0
a_failed_run_is_not_recorded
-run.write("failed", {**run.former_metrics, "reason": reason})
+pass
""",
    "serving": r"""
a_folded_bias_is_not_scaled
-copy.set_weights([kernel, shift + scale * bias])
+copy.set_weights([kernel, shift + bias])
folding_forgets_the_mean
-return scale, beta - scale * _array(norm.moving_mean)
+return scale, beta - _array(norm.moving_mean)
folding_forgets_the_bias_of_positions
-        copy.position_bias.assign(layer.position_bias)
+        pass
a_norm_that_two_layers_read_is_folded
-readers.get(id(layer.output), [])) == 1
+readers.get(id(layer.output), [])) >= 1
an_export_has_no_bias
-copy.set_weights([kernel, shift + scale * bias])
+copy.set_weights([kernel, shift])
images_are_not_clipped
-return tf.clip_by_value(images, 0.0, 255.0)
+return tf.clip_by_value(images, 0.0, 256.0)
one_of_two_classes_has_its_own_score
-return tf.concat([1.0 - probabilities, probabilities], axis=-1)
+return tf.concat([probabilities, 1.0 - probabilities], axis=-1)
labels_are_numbered_from_one
-self.labels.lookup(tf.cast(indices, tf.int64))
+self.labels.lookup(tf.cast(indices, tf.int64) + 1)
a_changed_file_is_not_noticed
-if found.get(name) != checksum
+if name not in found
infinite_pixels_are_answered
-tf.reduce_all(tf.math.is_finite(images), axis=[1, 2, 3])
+tf.reduce_all(~tf.math.is_nan(images), axis=[1, 2, 3])
""",
    "commands": r"""
the_newest_run_is_the_oldest
-return max(found, key=lambda run: (run.started, run.folder))
+return min(found, key=lambda run: (run.started, run.folder))
a_resumed_run_begins_now
-began = self.read().started if self.exists() else ""
+began = ""
an_unfinished_run_is_exported
-if self.status != "finished":
-            raise
+if self.status == "failed":
+            raise
an_error_of_writing_is_swallowed
-raise FileError(f"Cannot write {path}: {reason(error)}.") from error
+pass
a_lock_is_not_taken
-fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
+fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
bounds_are_not_checked
-        _check_bounds(each.name, value, each.metadata)
an_unknown_field_is_ignored
-return dataclasses.replace(instance, **changes)
+return dataclasses.replace(instance)
""",
    "streaming": r"""
a_window_keeps_its_oldest_inputs
-state = {"inputs": x[:, length:]}
+state = {"inputs": x[:, : self._window]}
a_streamed_convolution_has_no_bias
-outputs += tf.cast(bias, x.dtype)
+outputs += 0 * tf.cast(bias, x.dtype)
a_stream_normalizes_by_its_piece
-kwargs["training"] = False
+kwargs["training"] = True
all_tokens_are_drawn_with_one_seed
-[seed, place], tf.int32
+[seed, 0 * place], tf.int32
probabilities_are_taken_for_logits
-logits = tf.math.log(logits)
+logits = tf.identity(logits)
""",
    "keras_hub": r"""
a_dtype_is_not_obeyed
-keras.config.set_dtype_policy(keras.dtype_policies.get(dtype))
+pass
a_weight_file_is_not_read
-weights=weights,
+weights=None,
a_head_is_an_argument
-heads = {"include_top", "pooling", "endpoints", "classes"}
+heads = set()
a_saved_backbone_forgets_its_arguments
-in arguments.items()},
+in ()},
a_backbone_has_no_pyramid
-self.pyramid_outputs = model.pyramid_outputs
+self.pyramid_outputs = {}
""",
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """A wrong change of one to five lines."""

    name: str  # what is wrong
    room: str  # a key of `ROOMS`
    old: str  # a text that one file of the room holds once
    new: str  # what takes its place
    tests: tuple[str, ...]  # that are asked first

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


def _faults():
    """The faults of `CHANGES`, with the tests that the page names."""
    rows = re.findall(r"`(\w+)` \| `([^`[]+)", PAGE.read_text("utf-8"))
    tests = {name: (test,) for name, test in rows}
    for room, changes in CHANGES.items():
        found = re.findall(r"^(\w+)\n((?:-.*\n)+)((?:\+.*\n)*)", changes, re.M)
        for name, *parts in found:
            old, new = (re.sub("^.", "", part, flags=re.M) for part in parts)
            if new:
                old, new = old[:-1], new[:-1]
            yield Fault(name, room, old, new, tests.get(name, ()))


FAULTS = [*_faults()]
