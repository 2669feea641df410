package block

import (
	"fmt"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
)

// Claims are the folders and the servers that the engines of one Corefile use. The zero Claims has
// none.
type Claims struct {
	folders map[string]engine.Settings // who uses which folder
	askers  map[asker]engine.Settings  // who asks which server
}

// asker is whom a server takes an engine for, by any protocol.
type asker struct{ endpoint, secret string }

// Add refuses a block whose engine asks the same server with the same key as another block,
// because the server's rules hold for both together. It also refuses two engines in one folder.
func (c *Claims) Add(b *Block) error {
	if !b.Config.Online {
		return nil
	}
	if c.folders == nil {
		c.folders, c.askers = make(map[string]engine.Settings), make(map[asker]engine.Settings)
	}
	s := b.Settings
	for _, endpoint := range s.Endpoints() {
		who := asker{endpoint, b.Config.Secret}
		switch other, ok := c.askers[who]; {
		case ok && other.Endpoint != s.Endpoint:
			return fmt.Errorf("another server block asks %s with the same key and other endpoints: give both blocks the same endpoints in the same order", endpoint)
		case ok && other != s:
			return fmt.Errorf("another server block asks %s with the same key and different settings: %s and where the key is must be identical in both blocks", endpoint, strings.Join(engine.Words(), ", "))
		}
		c.askers[who] = s
	}
	if s.DB == "" {
		return nil
	}
	if other, ok := c.folders[s.DB]; ok && other != s {
		return fmt.Errorf("db %s is in use by another server block with another key or endpoint: give each its own db", s.DB)
	}
	c.folders[s.DB] = s
	return nil
}
