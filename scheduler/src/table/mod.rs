//! The task table: made if it is missing, compared with what it should be, repaired beside the service.

pub mod defaults;
pub mod former_table;
pub mod index_place;
pub mod lock_holder;
pub mod make;
pub mod shape;
pub mod table_plan;
pub mod table_repair;
pub mod upkeep;
