//! How tensors are cut into files, and their headers.

use std::collections::HashMap;

use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Map, Value, json};

use crate::files::WHOLE;
use crate::{HuggingFaceError, StoredType};

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    /// The logical tensor that it is a part of, and which part.
    pub of: (usize, usize),
    /// The name in the library.
    pub name: String,
    pub shape: Vec<usize>,
    pub dtype: StoredType,
}

impl Item {
    pub fn bytes(&self) -> u64 {
        (self.shape.iter().product::<usize>() * self.dtype.bytes()) as u64
    }
}

/// A file and its tensors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shard {
    pub file: String,
    pub items: Vec<Item>,
}

/// Cuts a list of tensors, in its order, into files of at most `limit` bytes of numbers; a larger tensor has a file of
/// its own. In a file wider types come first, so that every tensor is aligned.
pub(crate) fn cut(items: Vec<Item>, limit: u64) -> Vec<Shard> {
    let mut shards: Vec<Vec<Item>> = Vec::new();
    let mut bytes = 0_u64;
    for item in items {
        let full = bytes.saturating_add(item.bytes()) > limit;
        bytes = if full || shards.is_empty() { 0 } else { bytes } + item.bytes();
        match shards.last_mut() {
            Some(last) if !full => last.push(item),
            _ => shards.push(vec![item]),
        }
    }
    let count = shards.len();
    let file = |number: usize| match count {
        1 => WHOLE.to_owned(),
        _ => format!("model-{number:05}-of-{count:05}.safetensors"),
    };
    let sorted = |(index, mut items): (usize, Vec<Item>)| {
        items.sort_by_key(|item| std::cmp::Reverse(item.dtype.bytes()));
        Shard { file: file(index + 1), items }
    };
    shards.into_iter().enumerate().map(sorted).collect()
}

impl Shard {
    /// What stands before the numbers.
    pub fn header(&self) -> Result<Vec<u8>, HuggingFaceError> {
        let mut end = 0;
        let info = |item: &Item| {
            let start = end;
            end += item.bytes() as usize;
            let info =
                TensorInfo { dtype: item.dtype.in_header(), shape: item.shape.clone(), data_offsets: (start, end) };
            (item.name.clone(), info)
        };
        let infos = self.items.iter().map(info).collect();
        // Without it the library does not know whose tensors they are.
        let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let damaged = |reason: String| HuggingFaceError::damaged(self.file.as_ref(), reason);
        let metadata = Metadata::new(Some(about), infos).map_err(|error| damaged(error.to_string()))?;
        let mut text = serde_json::to_vec(&metadata).map_err(|error| damaged(error.to_string()))?;
        text.resize(text.len().next_multiple_of(8), b' ');
        let mut header = (text.len() as u64).to_le_bytes().to_vec();
        header.extend(text);
        Ok(header)
    }
}

/// The index of several files.
pub(crate) fn index(shards: &[Shard]) -> Value {
    let mut map: Vec<(&str, &str)> = shards
        .iter()
        .flat_map(|shard| shard.items.iter().map(|item| (item.name.as_str(), shard.file.as_str())))
        .collect();
    map.sort_unstable();
    let map: Map<String, Value> = map.into_iter().map(|(name, file)| (name.to_owned(), file.into())).collect();
    let items = || shards.iter().flat_map(|shard| &shard.items);
    let parameters: usize = items().map(|item| item.shape.iter().product::<usize>()).sum();
    let bytes: u64 = items().map(Item::bytes).sum();
    json!({ "metadata": { "total_parameters": parameters, "total_size": bytes }, "weight_map": map })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, elements: usize, dtype: StoredType) -> Item {
        Item { of: (0, 0), name: name.to_owned(), shape: vec![elements], dtype }
    }

    fn names(shards: &[Shard]) -> Vec<(&str, Vec<&str>)> {
        shards
            .iter()
            .map(|shard| (shard.file.as_str(), shard.items.iter().map(|item| item.name.as_str()).collect()))
            .collect()
    }

    #[test]
    fn files_are_filled_in_order_and_large_tensors_stand_alone() {
        let items = ["a", "b", "c", "d"].into_iter().zip([2, 2, 9, 1]);
        let items: Vec<Item> = items.map(|(name, elements)| item(name, elements, StoredType::F32)).collect();
        let shards = cut(items.clone(), 16);
        assert_eq!(
            names(&shards),
            [
                ("model-00001-of-00003.safetensors", vec!["a", "b"]),
                ("model-00002-of-00003.safetensors", vec!["c"]),
                ("model-00003-of-00003.safetensors", vec!["d"]),
            ]
        );
        assert_eq!(names(&cut(items.clone(), 1)).len(), 4);
        assert_eq!(names(&cut(items, 56)), [(WHOLE, vec!["a", "b", "c", "d"])]);
        let index = index(&shards);
        assert_eq!(index["metadata"], json!({"total_parameters": 14, "total_size": 56}));
        assert_eq!(index["weight_map"]["c"], "model-00002-of-00003.safetensors");
    }

    #[test]
    fn wider_types_come_first_and_headers_are_aligned() {
        let items = vec![item("a", 3, StoredType::Bf16), item("b", 1, StoredType::F32), item("c", 1, StoredType::F16)];
        let shards = cut(items, 100);
        assert_eq!(names(&shards), [(WHOLE, vec!["b", "a", "c"])]);
        let header = shards[0].header().unwrap();
        assert!(header.len().is_multiple_of(8));
        let read: Metadata = serde_json::from_slice(&header[8..]).unwrap();
        assert_eq!(read.info("a").unwrap().data_offsets, (4, 10));
        assert_eq!(read.metadata().as_ref().unwrap()["format"], "pt");
    }
}
