package safebrowsing

import "github.com/coredns/caddy"

// saidKey is where an instance of CoreDNS keeps what it has logged about its
// Corefile.
type saidKey struct{}

// saidOf returns what the instance has logged about its Corefile: server blocks
// that import the same lines log them once.
func saidOf(c *caddy.Controller) map[string]bool {
	said, ok := c.Get(saidKey{}).(map[string]bool)
	if !ok {
		said = make(map[string]bool)
		c.Set(saidKey{}, said)
	}
	return said
}

// say logs the warnings and notes of the Corefile, but for those that were said.
// It is not safe for concurrent use of said: functions of OnStartup run one after
// the other.
func (c *config) say(said map[string]bool) {
	for _, text := range c.warnings {
		if !said[text] {
			log.Warning(text)
		}
		said[text] = true
	}
	for _, text := range c.notes {
		if !said[text] {
			log.Info(text)
		}
		said[text] = true
	}
}
