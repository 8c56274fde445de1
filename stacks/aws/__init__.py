"""Small things of AWS that several parts share: the caller, prices, buckets, trust, security groups."""
