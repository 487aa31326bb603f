//! What is packaged for load balancers and monitoring.
