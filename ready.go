package safebrowsing

// Ready implements the ready.Readiness interface: true as soon as the lists are
// in force, and at the latest when the first contact with the server has ended,
// however it ended. A server that is down must not keep a resolver out of
// service. It speaks for all server blocks, of which the ready plugin asks only
// one.
func (s *SafeBrowsing) Ready() bool {
	return (!s.cfg.Online || s.policy.InUse()) && engines.Ready()
}
