//! The search: the best, all, and what is exported.

mod best;
mod cancelled;
mod export;
mod export_expert_gaps;
mod export_experts;
mod export_families;
mod export_fields;
mod export_numbers;
mod export_options;
mod feasible;
mod found;
mod framework_rules;
mod frameworks_page;
mod learned;
mod memory_remedies;
mod native;
mod native_bounds;
mod native_constraints;
mod native_experts;
mod native_padding;
mod native_rules;
mod nodes;
mod problems;
mod request;
mod simplest;
mod stopped;
