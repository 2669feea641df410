package safebrowsing

import (
	"net/http"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Client returns a client of the server, as the plugin would use it, which names
// itself in the same way. A nil transport is the network. Close it when it is no
// longer needed.
func (o *Offline) Client(transport http.RoundTripper) (*protocol.Client, error) {
	return o.settings.client(transport)
}

// Checks reports whether names of the host are for this server block to check:
// they are in its zones and in none of its exceptions.
func (o *Offline) Checks(h lookup.Host) bool { return o.plugin.mine(h.String() + ".") }
