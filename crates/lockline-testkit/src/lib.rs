//! One conformance suite for every driver.
