package main

import (
	"strings"
	"testing"

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
)

// What the relay prints can be copied: the parser wants braces and properties on lines of their own.
func TestTheRelayPrintsAStanzaThatThePluginTakes(t *testing.T) {
	key := t.TempDir() + "/key"
	write(t, key, "KEYOFONECLIENT\n")
	for name, cfg := range map[string]relay.Config{"open": {}, "with keys": {ClientKeyFile: "keys.txt"}} {
		text := corefileOfClients(cfg, "https://192.168.1.2:8099")
		if got := strings.Contains(text, "api_key_file FILE # with one of the keys in keys.txt"); got != (cfg.ClientKeyFile != "") {
			t.Errorf("%s: %s", name, text)
		}
		c := caddy.NewTestController("dns", strings.ReplaceAll(text, " FILE ", " "+key+" "))
		c.ServerBlockKeys = []string{"."}
		if parsed, err := config.Parse(c, ""); err != nil || parsed.Endpoint != "https://192.168.1.2:8099" {
			t.Errorf("%s: the plugin takes %q as %q, %v", name, text, parsed.Endpoint, err)
		}
	}
}
