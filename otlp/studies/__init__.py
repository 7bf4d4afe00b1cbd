"""Studies: experiments over solvers, rules, schemes and models, each ending in a table."""
