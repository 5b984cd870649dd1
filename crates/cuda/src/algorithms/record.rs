//! What was chosen on a device, kept on disk for later runs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use quadrille_engine::{Algorithms, ProductAlgorithm};
use quadrille_files::{Document, beside, publish};
use quadrille_spec::ElementType;
use quadrille_step::Product;
use serde::{Deserialize, Serialize};

/// Counts changes of the format.
const VERSION: u32 = 1;
/// Algorithms of many models and layouts take less.
const FILE: Document = Document::new("a record of products", 64 << 20);

/// What an algorithm is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How the operands lie, and the sizes.
    pub product: Product,
    /// The type of both operands.
    pub operands: ElementType,
    /// The type of the result.
    pub result: ElementType,
}

impl Wanted {
    fn is_of(&self, chosen: &ProductAlgorithm) -> bool {
        (self.product, self.operands, self.result) == (chosen.product, chosen.operands, chosen.result)
    }
}

/// The algorithms of a device, and the file that keeps them.
pub struct Record {
    /// `None`: they are kept as long as the process runs.
    file: Option<PathBuf>,
    chosen: Algorithms,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    algorithms: Algorithms,
}

impl Record {
    /// What a folder has of a device, of which `is_usable` looks at each. A file that cannot be read, or is of another device or
    /// version, counts as none: that costs the time of measuring.
    pub fn open(folder: Option<&Path>, device: &str, is_usable: impl FnMut(&ProductAlgorithm) -> bool) -> Self {
        let name: String =
            device.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
        let file = folder.map(|folder| folder.join(name + ".json"));
        let kept = file.as_deref().and_then(|file| serde_json::from_str::<Kept>(&FILE.text(file).ok()?).ok());
        let kept = kept.filter(|kept| kept.version == VERSION && kept.algorithms.device == device);
        let mut products = kept.map(|kept| kept.algorithms.products).unwrap_or_default();
        products.retain(is_usable);
        Self { file, chosen: Algorithms { device: device.to_owned(), products } }
    }

    /// Whose algorithms they are.
    pub fn device(&self) -> &str {
        &self.chosen.device
    }

    /// The algorithm of each product: the recorded one, or else what `measure` says, which is recorded.
    pub fn choose<E>(
        &mut self,
        wanted: &[Wanted],
        mut measure: impl FnMut(&Wanted) -> Result<ProductAlgorithm, E>,
    ) -> Result<Algorithms, E> {
        let before = self.chosen.products.len();
        let mut products = Vec::with_capacity(wanted.len());
        for one in wanted {
            if !self.chosen.products.iter().any(|chosen| one.is_of(chosen)) {
                self.chosen.products.push(measure(one)?);
            }
            products.extend(self.chosen.products.iter().find(|chosen| one.is_of(chosen)).cloned());
        }
        if self.chosen.products.len() > before {
            // A cache that cannot be written costs time only.
            let _ = self.save();
        }
        Ok(Algorithms { device: self.chosen.device.clone(), products })
    }

    fn save(&self) -> std::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mut draft = beside(file)?;
        let kept = Kept { version: VERSION, algorithms: self.chosen.clone() };
        writeln!(draft, "{}", serde_json::to_string_pretty(&kept)?)?;
        publish(draft, file)
    }
}

#[cfg(test)]
mod tests {
    use quadrille_step::GemmStorage;

    use super::*;

    const DEVICE: &str = "NVIDIA H200, CUDA 13.0, cuBLASLt 130100";

    fn wanted(m: usize, result: ElementType) -> Wanted {
        let product = Product { storage: GemmStorage::Tn, m, n: 2, k: 3 };
        Wanted { product, operands: ElementType::Bf16, result }
    }

    /// What measuring a product says: `word` is the algorithm.
    fn measured(of: &Wanted, word: u32) -> ProductAlgorithm {
        let Wanted { product, operands, result } = *of;
        let seconds = vec![None, Some(1.5e-5)];
        ProductAlgorithm { product, operands, result, chosen: Some(1), algorithm: Some([word; 16]), seconds }
    }

    /// The algorithms of products in a record of a folder, and how many were measured for it.
    fn chosen(folder: &Path, device: &str, wanted: &[Wanted], word: u32) -> (Algorithms, usize) {
        let mut record = Record::open(Some(folder), device, |_| true);
        let mut times = 0;
        let measure = |of: &Wanted| -> Result<ProductAlgorithm, ()> {
            times += 1;
            Ok(measured(of, word))
        };
        (record.choose(wanted, measure).unwrap(), times)
    }

    #[test]
    fn what_is_recorded_is_chosen_again_and_not_measured() {
        let folder = tempfile::tempdir().unwrap();
        let folder = &folder.path().join("not/yet/there");
        let all = [wanted(1, ElementType::F32), wanted(2, ElementType::F32)];
        let first = chosen(folder, DEVICE, &all[..1], 0xffff_ffff);
        assert_eq!((first.1, first.0.products[0].algorithm), (1, Some([0xffff_ffff; 16])));
        // The second alone is measured, and both come as they were recorded.
        let both = chosen(folder, DEVICE, &all, 7);
        assert_eq!((both.1, &both.0.products[0]), (1, &first.0.products[0]));
        assert_eq!(chosen(folder, DEVICE, &all, 8), (both.0, 0));
        let files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files, ["NVIDIA-H200--CUDA-13.0--cuBLASLt-130100.json"]);
    }

    #[test]
    fn other_types_devices_drivers_and_libraries_are_measured_anew() {
        let folder = tempfile::tempdir().unwrap();
        let of = [wanted(1, ElementType::F32)];
        assert_eq!(chosen(folder.path(), DEVICE, &of, 1).1, 1);
        assert_eq!(chosen(folder.path(), DEVICE, &[wanted(1, ElementType::Bf16)], 1).1, 1);
        for device in ["NVIDIA H100", "CUDA 13.1", "cuBLASLt 130200"] {
            let word = device.split(' ').next().unwrap();
            let other: Vec<&str> =
                DEVICE.split(", ").map(|part| if part.starts_with(word) { device } else { part }).collect();
            assert_eq!(chosen(folder.path(), &other.join(", "), &of, 1).1, 1, "{other:?}");
        }
        // A file under the name of another device is not believed.
        let file = folder.path().join("NVIDIA-H200--CUDA-13.0--cuBLASLt-130100.json");
        fs::copy(&file, folder.path().join("other.json")).unwrap();
        assert_eq!(chosen(folder.path(), "other", &of, 1).1, 1);
    }

    #[test]
    fn a_damaged_record_and_algorithms_that_cannot_be_used_are_measured_anew() {
        let folder = tempfile::tempdir().unwrap();
        let of = [wanted(1, ElementType::F32)];
        let (first, _) = chosen(folder.path(), DEVICE, &of, 1);
        let mut refusing = Record::open(Some(folder.path()), DEVICE, |_| false);
        let again = refusing.choose(&of, |of| Ok::<_, ()>(measured(of, 2))).unwrap();
        assert_ne!(again, first);
        let file = folder.path().read_dir().unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        for damaged in [&text[..text.len() / 2], "", &text.replace("\"version\": 1", "\"version\": 2")] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(chosen(folder.path(), DEVICE, &of, 3).1, 1, "{damaged}");
        }
    }

    #[test]
    fn without_a_folder_a_process_keeps_what_it_has_measured() {
        let mut record = Record::open(None, DEVICE, |_| true);
        let of = [wanted(1, ElementType::F32)];
        let first = record.choose(&of, |of| Ok::<_, ()>(measured(of, 1))).unwrap();
        let again = record.choose(&of, |_| -> Result<ProductAlgorithm, ()> { panic!("it is there") });
        assert_eq!(again.unwrap(), first);
        // What cannot be measured is told, and not recorded.
        assert_eq!(record.choose(&[wanted(9, ElementType::F32)], |_| Err("no")).unwrap_err(), "no");
        assert_eq!(record.chosen.products.len(), 1);
    }
}
