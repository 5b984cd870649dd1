//! How a program that trains stores numbers, which kernels it has and what it sends when, beyond what a layout says.

use quadrille_spec::{
    AxisOrder, AxisSet, Cluster, Device, Efficiency, ElementType, Layout, Origin, Peaks, Sparsity, SpecError, Zero,
};
use quadrille_step::Formats;

use super::beside::{BESIDE_FSDP, BESIDE_TENSORS};
use super::{Moments, Numbers};

/// What a framework does the same way in every layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Framework {
    /// What it is called in reports and by flags.
    pub name: &'static str,
    /// Type of the values.
    pub dtype: ElementType,
    /// Type of the gradients of weights.
    pub gradients: ElementType,
    /// How much of the matrices of blocks is pruned: of this program's engine, which holds gradients and states of what is
    /// kept; what a tile keeps is estimated. `None`: nothing is.
    pub sparsity: Option<Sparsity>,
    /// Bytes that a parameter takes, if it is not pruned.
    pub states: StateBytes,
    /// Bytes of an activation and of what is sent of it; also of the operands of products.
    pub activation_bytes: u64,
    /// What was said of the types of its numbers: gradients and states above follow them.
    pub numbers: Numbers,
    /// Bytes of a logit while the loss is taken, and of its gradient.
    pub logit_bytes: u64,
    /// Bytes of a logit and its copies at the worst moment of the loss.
    pub loss_bytes: u64,
    /// Bytes that are kept of each element that dropout may zero: 0 where masks are drawn again.
    pub mask_bytes: u64,
    /// Fraction of the device's rate of products that its libraries reach: in (0, 1].
    pub product_rate: f64,
    /// What each rank's rows of a vocabulary are padded to a multiple of, unless a layout says otherwise; 1: they are not.
    pub vocab_multiple: usize,
    /// Fraction of the rate of products that is left where rows of a rank's logits do not begin where tensor cores take them
    /// at full speed: in (0, 1].
    pub unaligned_rate: f64,
    /// How attention is computed.
    pub attention: AttentionKernel,
    /// Fraction of the device's rate of flash-style attention that its kernel reaches.
    pub attention_rate: f64,
    /// Fraction of a device's rate that is left to kernels while a collective runs beside them: in (0, 1].
    pub compute_share: f64,
    /// Whether a norm whose rows lie on one device is one kernel, which reads its input once.
    pub fused_norms: bool,
    /// What is a sequence of a tensor library's kernels instead of one.
    pub eager: Eager,
    /// Whether the inputs of products that scattered activations gather are gathered again for the backward pass, under the
    /// product of the input gradient, and only the scattered ones are kept; else the gathered ones are.
    pub gathers_inputs_again: bool,
    /// Whether gate and up projection of a perceptron are layers of their own, each of which sums its input gradient over the axes
    /// that cut it, where inputs are not scattered; neither sum is hidden under the gradient of the weights.
    pub gates_apart: bool,
    /// Whether full recomputation repeats the last product of a segment too, whose result nobody needs again.
    pub repeats_whole_segments: bool,
    /// Whether the weights of a block are gathered over z at once.
    pub gathers_blocks: bool,
    /// Whether ORS keeps a gradient and its scattered shard until the next scattering begins; else until it waits for all of
    /// them at the end of the backward pass.
    pub scatters_in_turn: bool,
    /// Whether ORS also puts reductions over data under the last microbatch's backward pass.
    pub reduces_under_backward: bool,
    /// Whether ZeRO's gathers of updated weights run under the next step's first forward pass: always, never, or where
    /// OAG is on.
    pub gathers_under_forward: Hiding,
    /// The axes over which ZeRO shards states, where gradients are summed whole on all ranks that replicate a parameter
    /// (all-reduced) and each takes its part; else they are reduce-scattered, over all axes that replicate it.
    pub sums_whole: Option<AxisSet>,
    /// Whether ZeRO's ranks own whole parameters and send the updated ones to the others, one rank after the other; else each has
    /// its part of every parameter, and they are gathered.
    pub broadcasts_updates: bool,
    /// True if inputs of products that are cast to fewer bits are kept for weight gradients as they were cast; else as they were.
    pub keeps_cast_operands: bool,
    /// True if buffers of experts that drop nothing are reserved for the most rows that tokens may choose; else they have the rows
    /// that are routed.
    pub reserves_expert_rows: bool,
    /// True if the weights of a router scale the results of the experts' activation function, so that the results of their last
    /// product are not kept for the backward pass; else these are scaled, and kept.
    pub weighs_activations: bool,
    /// Bytes of gradients that are reduced over data at once; `None`: every parameter by itself.
    pub gradient_bucket: Option<u64>,
    /// Whether collectives of different groups run beside each other, each group's in the order of their issue; else all of
    /// a rank's follow each other.
    pub streams_by_group: bool,
    /// Seconds for which the host is busy with an operation. Launches run ahead of the device, so that it waits where
    /// the operations of a whole pass through a block are shorter.
    pub host_seconds: f64,
    /// Seconds that every operation takes beside the device's launch, where the host waits for each.
    pub dispatch_seconds: f64,
    /// Seconds of a step in which a device waits for its tokens.
    pub data_seconds: f64,
    /// Bytes of a device that are taken beside tensors, in the mean of runs: the driver's context, communication buffers,
    /// workspaces, what the allocator caches.
    pub reserved_bytes: u64,
    /// By how much runs differ in that: one deviation; 0: not at all, or nothing is known.
    pub reserved_deviation: u64,
    /// True if layouts have a single device, on which runs take less beside their tensors: [`Self::on_devices`].
    pub is_alone: bool,
    /// Bytes that the allocator holds per byte in use at the peak, at least 1.
    pub allocator_factor: f64,
}

/// Bytes per parameter: of a matrix or a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateBytes {
    /// The weight that the rank stores.
    pub weight: u64,
    /// The gradient that microbatches are summed in.
    pub gradient: u64,
    /// Master weight (if it is not the weight itself) and the optimizer's moments.
    pub optimizer: u64,
    /// What is gathered of a weight over z.
    pub gathered_weight: u64,
    /// What is sent of a gradient.
    pub sent_gradient: u64,
}

impl StateBytes {
    /// The same where the optimizer's states lie elsewhere.
    #[must_use]
    pub fn without_optimizer(self) -> Self {
        Self { optimizer: 0, ..self }
    }

    /// Bytes that a rank holds of an element at least, where so many ranks hold the same; under ZeRO-2 they share the
    /// gradients of which `shares_gradient` says so.
    pub fn held(&self, zero: Zero, replicas: f64, shares_gradient: bool) -> f64 {
        let [weight, gradient, optimizer] = [self.weight, self.gradient, self.optimizer].map(|bytes| bytes as f64);
        match zero {
            Zero::Off => weight + gradient + optimizer,
            Zero::Gradients if shares_gradient => weight + (gradient + optimizer) / replicas,
            Zero::Optimizer | Zero::Gradients => weight + gradient + optimizer / replicas,
        }
    }
}

/// What is a sequence of a tensor library's kernels, each of which reads and writes whole tensors; f32 between them in
/// norms, in the softmax of stored scores and in the loss. What they move is counted from their definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eager {
    /// Norms: conversion, square, mean, scaling, conversion back, weight.
    pub norms: bool,
    /// Rotary positions and SwiGLU.
    pub pointwise: bool,
    /// Scale, mask and softmax of stored scores. Where they are not, Megatron-LM's fused kernel does it as far as its rule for
    /// shapes lets it, and eager kernels take the time elsewhere; what is kept of scores is counted as of the fused one.
    pub scores: bool,
    /// The loss: conversion of the logits, maximum, difference, exponential, sum, quotient, scaling, conversion back
    /// (Megatron-LM's vocabulary-parallel cross-entropy).
    pub loss: bool,
}

impl Eager {
    /// Nothing is.
    pub const NONE: Self = Self { norms: false, pointwise: false, scores: false, loss: false };
}

/// How attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionKernel {
    /// Tile by tile; scores are never stored, and the backward pass computes them again. Tiles above the diagonal of
    /// causal attention are left out.
    Flash,
    /// Scores and probabilities are stored: `heads * seq_len^2` numbers a sequence, several times; whole, also where
    /// the mask is causal. Selective recomputation computes them again (Korthikanti et al. 2022).
    Stored,
}

/// Whether communication runs under computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hiding {
    /// In every layout.
    Always,
    /// In none.
    Never,
    /// Where the layout's overlap pass is on.
    Switched,
}

/// Of PyTorch's eager mode under Megatron-LM; fitted, see `quadrille validate published --cross`. An operation of the model
/// stands for several calls.
const EAGER_HOST_SECONDS: f64 = 83.0e-6;

/// Bytes by which operands are aligned that tensor cores are fed with at full speed (NVIDIA, Matrix Multiplication Background User's
/// Guide). BigScience's trials with heads of 216 bytes took as long as if products of scores ran without tensor cores; those with heads
/// of 900 bytes, multiples of 4 alone, did not.
const ALIGNMENT: u64 = 16;

/// What is left of the rate of products of logits whose rows begin anywhere; fitted, see `quadrille validate published --cross`.
const UNALIGNED_RATE: f64 = 0.32;

/// What is left of a device's rate while a rank's collectives, above all gathers of blocks, are under way: their kernels take
/// multiprocessors, and copies bandwidth; fitted, see `quadrille validate published --cross`.
const SHARE_BESIDE_GATHERS: f64 = 0.78;

impl Framework {
    /// This program's engine in f32: weights and gradients of 4 bytes, two moments. In other types: [`Framework::own`].
    pub const QUADRILLE: Self = Self {
        name: "quadrille",
        dtype: ElementType::F32,
        gradients: ElementType::F32,
        sparsity: None,
        states: StateBytes { weight: 4, gradient: 4, optimizer: 8, gathered_weight: 4, sent_gradient: 4 },
        activation_bytes: 4,
        numbers: Numbers::USUAL,
        logit_bytes: 4,
        loss_bytes: 4,
        mask_bytes: 0,
        product_rate: 1.0,
        vocab_multiple: 1,
        unaligned_rate: UNALIGNED_RATE,
        attention: AttentionKernel::Flash,
        attention_rate: 1.0,
        compute_share: 1.0,
        fused_norms: false,
        eager: Eager::NONE,
        gathers_inputs_again: false,
        gates_apart: false,
        repeats_whole_segments: false,
        gathers_blocks: false,
        scatters_in_turn: false,
        reduces_under_backward: false,
        gathers_under_forward: Hiding::Always,
        sums_whole: None,
        broadcasts_updates: false,
        keeps_cast_operands: false,
        reserves_expert_rows: true,
        weighs_activations: false,
        gradient_bucket: None,
        streams_by_group: false,
        host_seconds: 0.0,
        dispatch_seconds: 0.0,
        data_seconds: 0.0,
        reserved_bytes: 0,
        reserved_deviation: 0,
        is_alone: false,
        allocator_factor: 1.0,
    };

    /// Megatron-LM in mixed precision: weights in 16 bits, gradients in f32, master weights and two moments in f32
    /// (Narayanan et al. 2021; Korthikanti et al. 2022), with flash attention. Gradients are reduced in f32, in buckets
    /// of 40 million numbers (Megatron-Core's default). Sequence parallelism keeps the scattered inputs and gathers
    /// again. The loss holds the logits in 16 bits and in f32. Experts are given the rows that are routed
    /// (`moe/token_dispatcher.py`, `MoEAlltoAllTokenDispatcher`), whose activation function multiplies with the router's weights
    /// (`fusions/fused_bias_swiglu.py`, `weighted_bias_swiglu_impl`). Transformer Engine keeps the inputs of products as it has cast
    /// them (`pytorch/module/linear.py`, `save_original_input` off).
    pub const MEGATRON: Self = Self {
        name: "megatron",
        dtype: ElementType::Bf16,
        gradients: ElementType::F32,
        sparsity: None,
        states: StateBytes { weight: 2, gradient: 4, optimizer: 12, gathered_weight: 2, sent_gradient: 4 },
        activation_bytes: 2,
        numbers: Numbers::USUAL,
        logit_bytes: 4,
        loss_bytes: 6,
        mask_bytes: 1,
        product_rate: 1.0,
        vocab_multiple: 128,
        unaligned_rate: UNALIGNED_RATE,
        attention: AttentionKernel::Flash,
        attention_rate: 1.0,
        compute_share: 1.0,
        fused_norms: true,
        eager: Eager { loss: true, ..Eager::NONE },
        gathers_inputs_again: true,
        gates_apart: false,
        repeats_whole_segments: true,
        gathers_blocks: false,
        scatters_in_turn: true,
        reduces_under_backward: true,
        gathers_under_forward: Hiding::Switched,
        sums_whole: None,
        broadcasts_updates: false,
        keeps_cast_operands: true,
        reserves_expert_rows: false,
        weighs_activations: true,
        gradient_bucket: Some(160_000_000),
        streams_by_group: true,
        host_seconds: EAGER_HOST_SECONDS,
        dispatch_seconds: 0.0,
        data_seconds: 0.0,
        reserved_bytes: BESIDE_TENSORS[0],
        reserved_deviation: BESIDE_TENSORS[1],
        is_alone: false,
        allocator_factor: 1.0,
    };

    /// Megatron-LM before flash attention.
    pub const MEGATRON_STORED: Self =
        Self { name: "megatron-stored", attention: AttentionKernel::Stored, ..Self::MEGATRON };

    /// PyTorch's FSDP2 with a mixed-precision policy: f32 parameters, gradients and moments, sharded over z; gathered
    /// and reduced in bf16, block by block. The loss holds the logits in 16 bits and in f32, their log-softmax, its gradient
    /// and that in 16 bits: 2 + 4 + 4 + 4 + 2 bytes. Experts are given the rows that are routed; torchtitan weighs their results
    /// (`models/moe`, `score_before_experts` off, as in DeepSeek-V3) and keeps these. torchao keeps the inputs of products in 8 bits
    /// as they were (`float8/float8_linear.py`).
    pub const FSDP: Self = Self {
        name: "fsdp",
        states: StateBytes { weight: 4, gradient: 4, optimizer: 8, gathered_weight: 2, sent_gradient: 2 },
        gathers_blocks: true,
        compute_share: SHARE_BESIDE_GATHERS,
        keeps_cast_operands: false,
        weighs_activations: false,
        gradient_bucket: None,
        loss_bytes: 16,
        reserved_bytes: BESIDE_FSDP[0],
        reserved_deviation: BESIDE_FSDP[1],
        vocab_multiple: 1,
        ..Self::MEGATRON
    };

    /// All of them.
    pub const ALL: [Self; 4] = [Self::QUADRILLE, Self::MEGATRON, Self::MEGATRON_STORED, Self::FSDP];

    /// Bytes of an element of the sums of gradients: what a framework holds of them beyond that is the last microbatch's gradient.
    pub(super) fn summed_gradient_bytes(&self) -> u64 {
        self.states.gradient.min(self.activation_bytes.max(4))
    }

    /// The order in which it numbers ranks where nobody says another.
    pub fn order(&self) -> AxisOrder {
        AxisOrder::usual_of(self.name)
    }

    /// Whether it is this program's engine.
    pub fn is_own(&self) -> bool {
        self.name == Self::QUADRILLE.name
    }

    /// This program's engine with values of type `dtype` and gradients of weights of type `gradients`.
    pub fn own(dtype: ElementType, gradients: ElementType) -> Self {
        let formats = Formats::of(dtype, gradients);
        Self {
            dtype,
            gradients,
            states: StateBytes {
                weight: formats.weights,
                gradient: formats.gradients,
                optimizer: formats.masters + formats.moments,
                gathered_weight: formats.gathered,
                sent_gradient: formats.sent,
            },
            activation_bytes: formats.values,
            logit_bytes: formats.logits,
            loss_bytes: formats.logits,
            ..Self::QUADRILLE
        }
    }

    /// Bytes of a vector's element: this program's engine stores vectors as it computes them, others as matrices.
    pub fn vector_states(&self) -> StateBytes {
        if !self.is_own() {
            return self.states;
        }
        let formats = Formats::of(self.dtype, self.gradients);
        StateBytes {
            weight: formats.vectors,
            gradient: formats.vector_gradients,
            optimizer: formats.moments,
            sent_gradient: formats.sent_vectors,
            ..self.states
        }
    }

    /// The same where this program's engine runs a layout, in the layout's types. What numbers are in other frameworks, they
    /// say themselves.
    pub fn in_types_of(self, layout: &Layout) -> Self {
        let Self { sparsity, .. } = self;
        if self.is_own() { Self { sparsity, ..Self::own(layout.dtype, layout.gradients) } } else { self }
    }

    /// The part of a matrix of a block that has gradients and states.
    pub fn kept(&self) -> f64 {
        1.0 - self.sparsity.map_or(0.0, Sparsity::part)
    }

    /// The type of the operands of its products: f16 is widened to f32 by this program's kernels. No framework rounds f32 to TF32:
    /// this program's products do not, and PyTorch's do not unless they are told to.
    pub fn multiplies(&self) -> ElementType {
        match self.dtype {
            ElementType::F16 if self.is_own() => ElementType::F32,
            dtype => dtype,
        }
    }

    /// FLOP/s of a device in the type of the framework's products, at best; of a type that the device does not multiply, that of f32.
    pub fn peak(&self, device: &Device) -> f64 {
        let Peaks { half, single, .. } = device.peak;
        match device.peak.of(self.multiplies()).unwrap_or(single) {
            // What widens f16 is no faster than what widens bf16, where that is slower than f32: on processors.
            peak if self.dtype.is_narrow() && !self.multiplies_narrow() => half.unwrap_or(peak).min(peak),
            peak => peak,
        }
    }

    /// The same where it trains on a cluster whose devices have no products of bf16, but of f16: frameworks beside this program's
    /// engine then run in that (Megatron-LM's --fp16).
    #[must_use]
    pub fn on(self, cluster: &Cluster) -> Self {
        let peak = cluster.device.as_ref().map(|device| device.peak);
        let lacks = peak.is_some_and(|peak| peak.half.is_none() && peak.f16.is_some());
        if lacks && !self.is_own() && self.dtype == ElementType::Bf16 {
            Self { dtype: ElementType::F16, ..self }
        } else {
            self
        }
    }

    /// Makes sure that a device multiplies operands of its type.
    ///
    /// # Errors
    /// It says nothing of them.
    pub(super) fn check_on(&self, device: &Device) -> Result<(), SpecError> {
        let dtype = self.multiplies();
        if device.peak.of(dtype).is_some() {
            return Ok(());
        }
        let rule = format!("{} has no products of {dtype}", device.name);
        let remedy = if self.is_own() {
            "give `layout.dtype` f32 or f16, or name another device"
        } else {
            "name a device that has them"
        };
        Err(SpecError::invalid("dtype", dtype, rule, remedy))
    }

    /// FLOP/s of a device in most of its products, at best: what utilisation is a part of.
    pub fn product_peak(&self, device: &Device) -> f64 {
        self.numbers.products.and_then(|narrow| narrow.peak(&device.peak)).unwrap_or_else(|| self.peak(device))
    }

    /// What products of the framework's operands reach of that peak.
    pub fn products<'d>(&self, device: &'d Device) -> &'d Efficiency {
        let narrow = device.half_products.as_ref().filter(|_| self.multiplies_narrow());
        narrow.unwrap_or(&device.products)
    }

    /// What flash-style attention reaches, and the peak that this is a fraction of. A device whose kernels of 16 bits were measured
    /// has fractions of their own, of the peak of such products; elsewhere this program's kernels compute attention of 16 bits in
    /// the type of sums, as fast as in f32.
    pub fn attention_rates<'d>(&self, device: &'d Device) -> (&'d Efficiency, f64) {
        let peak = self.peak(device);
        match &device.half_attention {
            Some(half) if self.multiplies_narrow() => (half, peak),
            _ if self.is_own() && self.dtype.is_narrow() => (&device.attention, peak.min(device.peak.single)),
            _ => (&device.attention, peak),
        }
    }

    /// Puts another in its place, of this origin.
    pub fn set_products(&self, device: &mut Device, products: Efficiency, origin: Origin) {
        let narrow = device.half_products.as_mut().filter(|_| self.multiplies_narrow());
        let name = if narrow.is_some() { "half_products" } else { "products" };
        *narrow.unwrap_or(&mut device.products) = products;
        device.origins.set(name, origin);
    }

    /// Whether heads of so many columns begin half way between, where batched products do not use tensor cores.
    pub(super) fn begins_between(&self, columns: usize) -> bool {
        columns as u64 * self.activation_bytes % ALIGNMENT == ALIGNMENT / 2
    }

    /// Whether products take operands of 16 bits as they are: this program's kernels have an instruction for bf16 alone, and
    /// widen f16.
    fn multiplies_narrow(&self) -> bool {
        self.activation_bytes <= 2 && !(self.is_own() && self.dtype == ElementType::F16)
    }

    /// The same with gradients, moments and operands of products in other types: gradients are summed and, where they were not
    /// in fewer bytes before, sent as said.
    #[must_use]
    pub fn in_formats(self, numbers: Numbers) -> Self {
        let mut states = self.states;
        if let Some(gradients) = numbers.gradients {
            states.gradient = gradients.bytes();
            states.sent_gradient = states.sent_gradient.min(states.gradient);
        }
        if let Some(moments) = numbers.moments {
            states.optimizer = states.optimizer - Moments::F32.bytes() + moments.bytes();
        }
        Self { states, gradients: numbers.gradients.unwrap_or(self.gradients), numbers, ..self }
    }

    /// The framework of that name.
    ///
    /// # Errors
    /// A name that is not among those of [`Framework::ALL`].
    pub fn by_name(name: &str) -> Result<Self, SpecError> {
        Self::ALL.into_iter().find(|framework| framework.name == name).ok_or_else(|| SpecError::Unknown {
            what: "framework",
            name: name.to_owned(),
            known: Self::ALL.map(|framework| framework.name.to_owned()).to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Cluster, Device, Efficiency, ElementType, Peaks};

    use super::super::rates::Rates;
    use super::Framework;

    /// Own kernels have an instruction for products of bf16; f16 is widened, f32 is not rounded to TF32, and attention is computed in f32.
    #[test]
    fn products_and_attention_run_at_the_rates_that_kernels_have() {
        let cluster = Cluster::preset("dgx-a100").unwrap();
        let device = cluster.device.unwrap();
        let Peaks { half: Some(half), single, double, .. } = device.peak else { panic!("{:?}", device.peak) };
        assert_eq!((half, single, double), (312e12, 19.5e12, 19.5e12));
        let own = |dtype: ElementType| Framework::own(dtype, dtype.real().into());
        let peaks = ElementType::ALL.map(|(name, dtype)| (name, own(dtype).peak(&device)));
        assert_eq!(peaks, [("f32", single), ("f64", double), ("bf16", half), ("f16", single)]);
        assert_eq!(Framework::MEGATRON.peak(&device), half);
        let attention = |framework: Framework| {
            Rates::new(&device, &framework).attention(false, true, [1024.0, 64.0, 12.0], 1e6, 0.0).compute
        };
        let [wide, narrow] = [ElementType::F32, ElementType::Bf16].map(|dtype| attention(own(dtype)));
        assert!((narrow / wide - 1.0).abs() < 1e-12, "{narrow} and {wide} s");
        let theirs = attention(Framework::MEGATRON);
        assert!((theirs * half / single / wide - 1.0).abs() < 1e-12, "{theirs} and {wide} s");
    }

    /// Peaks in TFLOP/s by device and type: of this program's engine in f32, bf16 and f16, and of Megatron-LM.
    #[test]
    fn peaks_are_of_a_device_a_type_and_who_multiplies() {
        let own = |dtype: ElementType| Framework::own(dtype, dtype.real().into());
        let engine = [own(ElementType::F32), own(ElementType::Bf16), own(ElementType::F16)];
        for (name, of_engine, of_megatron) in [
            ("dgx-h100", [66.9, 989.4, 66.9], 989.4),
            ("dgx-h200", [66.9, 989.4, 66.9], 989.4),
            ("alps", [66.9, 989.4, 66.9], 989.4),
            ("dgx-a100", [19.5, 312.0, 19.5], 312.0),
            ("perlmutter", [19.5, 312.0, 19.5], 312.0),
            ("dgx-b200", [80.0, 2250.0, 80.0], 2250.0),
            ("gb200-nvl72", [90.0, 2500.0, 90.0], 2500.0),
            ("dgx-b300", [75.0, 2250.0, 75.0], 2250.0),
            ("gb300-nvl72", [80.0, 2500.0, 80.0], 2500.0),
            ("frontier", [47.85, 191.5, 47.85], 191.5),
            ("pcie-8x-l40s", [91.6, 362.05, 91.6], 362.05),
            ("pcie-4x-rtx3090", [35.6, 71.0, 35.6], 71.0),
            ("summit", [15.7, 0.0, 15.7], 125.0),
        ] {
            let cluster = Cluster::preset(name).unwrap();
            let device = cluster.device.as_ref().unwrap();
            for (framework, wanted) in engine.into_iter().zip(of_engine) {
                let framework = framework.on(&cluster);
                if wanted > 0.0 {
                    framework.check_on(device).unwrap();
                    assert!((framework.peak(device) / (wanted * 1e12) - 1.0).abs() < 1e-12, "{name}");
                } else {
                    let message = framework.check_on(device).unwrap_err().to_string();
                    assert!(message.starts_with("dtype = bf16: v100-16 has no products of bf16"), "{message}");
                    assert!(message.contains("`layout.dtype` f32 or f16"), "{message}");
                }
            }
            let megatron = Framework::MEGATRON.on(&cluster);
            megatron.check_on(device).unwrap();
            assert!((megatron.peak(device) / (of_megatron * 1e12) - 1.0).abs() < 1e-12, "{name}");
            let wanted = if name == "summit" { ElementType::F16 } else { ElementType::Bf16 };
            assert_eq!((megatron.dtype, megatron.name), (wanted, "megatron"), "{name}");
        }
    }

    /// Measured kernels of bf16 have the seconds that were measured, whoever's they are; others keep theirs.
    #[test]
    fn attention_of_16_bits_takes_what_was_measured_of_it() {
        let mut device = Cluster::preset("dgx-a100").unwrap().device.unwrap();
        let own = |dtype: ElementType| Framework::own(dtype, dtype.real().into());
        let frameworks = [own(ElementType::F32), own(ElementType::F16), own(ElementType::Bf16), Framework::MEGATRON];
        let seconds = |device: &Device| {
            frameworks.map(|framework| {
                Rates::new(device, &framework).attention(true, true, [1024.0, 64.0, 12.0], 1e6, 0.0).compute
            })
        };
        let before = seconds(&device);
        device.half_attention = Some(Efficiency::Constant { fraction: 0.25 });
        let after = seconds(&device);
        assert_eq!(after[..2], before[..2]);
        // Backward, causal: ten operations for each of a sequence's tokens, half of them.
        let measured = 5.0 * 1024.0 * 1e6 / (0.25 * 312e12);
        assert!(after[2..].iter().all(|seconds| (seconds / measured - 1.0).abs() < 1e-12), "{after:?}, {measured}");
    }
}
