//! Models, clusters, layouts and their rules.

mod hugging_face;
mod hugging_face_experts;
mod hugging_face_families;
mod hugging_face_gemma;
mod legal_grids;
mod measured_clusters;
mod remedies;
mod ring_bandwidths;
