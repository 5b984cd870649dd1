//! The model of a row.

use quadrille_spec::{Activation, Classic, Model, ModelFile, Norm, Positions, QkNorm};

use crate::row::Row;
use crate::sources::{Facts, Mixture};
use crate::unmapped::Unmapped;

/// How the models of a row are built beyond their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Layer norm, biases, learned positions, GELU, tied head.
    Gpt,
    /// As GPT without biases.
    Mpt,
    /// RMS norm, no biases, rotary positions, SwiGLU, head apart.
    Llama,
    /// Layer norm, no biases, rotary positions, a perceptron without gate, head apart.
    Nemotron,
    /// As Llama with GEGLU.
    Grok,
    /// As Llama with heads of 128 columns, whose queries and keys have norms.
    Qwen3,
}

impl Family {
    fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
        match () {
            () if begins(&["mpt"]) => Some(Self::Mpt),
            () if begins(&["llama", "internlm", "mixtral"]) => Some(Self::Llama),
            () if begins(&["grok"]) => Some(Self::Grok),
            () if begins(&["qwen3"]) => Some(Self::Qwen3),
            // Megatron-LM's models of 7 B and 15 B are built as Nemotron.
            () if begins(&["nemotron", "gpt3_7b", "gpt3_15b"]) => Some(Self::Nemotron),
            () if begins(&["gpt", "megatron", "turing", "bloom", "mt-nlg"]) => Some(Self::Gpt),
            () => None,
        }
    }
}

/// The model that a row trains. The vocabulary is padded as its framework does unless asked otherwise; where none does, ranks leave
/// out what does not come out even.
///
/// # Errors
/// A size that is not said, a family that is not known, sizes that break the rules of models.
pub fn model(row: &Row, facts: &Facts) -> Result<Model, Unmapped> {
    let sizes = &row.sizes;
    let size = |column, size: Option<usize>| size.ok_or(Unmapped::Missing(column));
    let family = Family::of(&row.model_name).ok_or(Unmapped::Architecture("a family that is not described"))?;
    let hidden = size("hidden", sizes.hidden)?;
    let heads = size("heads", sizes.heads)?;
    let tp = size("tp", sizes.tp)?;
    let vocab = size("vocab", sizes.vocab.or(facts.vocab))?;
    let vocab = match facts.framework.vocab_multiple {
        1 => vocab / tp * tp,
        multiple => vocab.next_multiple_of(multiple * tp),
    };
    let gpt = Classic {
        name: row.model_name.clone(),
        kv_heads: sizes.kv_heads.unwrap_or(heads),
        ffn: size("ffn_hidden", sizes.ffn_hidden)?,
        dropout: facts.dropout,
        ..Classic::gpt(size("layers", sizes.layers)?, hidden, heads, vocab, size("seq_len", sizes.seq_len)?)
    };
    let rotary = Classic { positions: Positions::Rotary, biases: false, tied_head: false, dropout: 0.0, ..gpt.clone() };
    let gated = row.notes.contains("swiglu=True");
    let model = match family {
        Family::Gpt if gated => Classic { activation: Activation::Swiglu, ..gpt },
        Family::Gpt => gpt,
        Family::Mpt => Classic { biases: false, ..gpt },
        Family::Grok => Classic { norm: Norm::Rms, activation: Activation::Geglu, ..rotary },
        Family::Llama | Family::Qwen3 => Classic { norm: Norm::Rms, activation: Activation::Swiglu, ..rotary },
        Family::Nemotron => rotary,
    };
    let mut file = ModelFile::from(model);
    if family == Family::Qwen3 {
        (file.head_dim, file.qk_norm) = (Some(128), Some(QkNorm::Rms));
    }
    if let Some(Mixture { count, per_token, capacity, .. }) = facts.experts {
        (file.experts, file.experts_per_token, file.capacity) = (Some(count), Some(per_token), capacity);
        file.capacity_group = capacity.and(tokens_of_device(row));
    }
    file.validate().map_err(|_| Unmapped::Architecture("sizes that break a rule of models"))
}

/// Tokens of a sequence that a device has where places of experts are counted.
fn tokens_of_device(row: &Row) -> Option<usize> {
    let scattered = if row.sequence_parallel == Some(true) { row.sizes.tp? } else { 1 };
    Some(row.sizes.seq_len? / (row.sizes.cp.unwrap_or(1).max(1) * scattered.max(1)))
}
