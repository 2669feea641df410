package test

import (
	"encoding/pem"
	"net"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// reloadVariant is a Corefile to reload with.
type reloadVariant struct {
	world    *world // whose server is asked
	corefile string
	refused  bool
	requests int // for lists, that the first reload with it causes
}

// newServers is how many variants come after the first one until each server has been asked.
const newServers = 4

// reloadVariants returns the cycle of TestReloads. TestTheCycleOfReloadsChangesEachSetting
// holds that it changes each setting of an engine.
func (w *world) reloadVariants(t *testing.T, other, secure *world) []reloadVariant {
	taken, err := net.Listen("tcp", w.host+":0")
	testkit.Must(t, err)
	t.Cleanup(func() { taken.Close() })
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	elsewhere, nowhere, webrisk := *w, *w, *w
	elsewhere.db, nowhere.db = t.TempDir(), "off"
	webrisk.protocol = protocol.DialectWebRisk
	dir := t.TempDir()
	ca := secure.authority(t, dir)
	cert, certKey := testkit.Certificate(t, dir)
	key := writeFile(t, dir, "api.key", "another\n")
	causes := func(requests int, at *world, corefile string) reloadVariant {
		return reloadVariant{world: at, corefile: corefile, requests: requests}
	}
	accepted := func(corefile string) reloadVariant { return causes(0, w, corefile) }
	refused := func(corefile string) reloadVariant { return reloadVariant{world: w, corefile: corefile, refused: true} }
	all := []reloadVariant{
		causes(1, w, w.plain()),
		accepted(w.plain()),
		causes(1, other, other.plain()),
		causes(1, secure, secure.plain("tls "+ca)),
		causes(0, secure, secure.plain("tls "+cert+" "+certKey+" "+ca)),
		accepted(w.plain("ttl 50s", "confirm_timeout 3s")),
		accepted(w.plain("cache 777")),
		refused(w.plain("no_such_property")),
		accepted(w.plain("max_entries 4096")),
		refused("not a Corefile {"),
		accepted(w.plain("lists se-4b")),
		causes(1, w, w.plain("mode realtime")), // the list of likely safe hosts
		refused(w.plain() + "other.example:" + port + " {\n\tbind " + w.host + "\n\ttemplate IN A\n}\n"),
		accepted(elsewhere.plain()),
		accepted(nowhere.plain()),
		accepted(w.plain("mode nostorage")), // without lists: the next one's are on disk
		accepted(w.plain("resolver " + w.upstream)),
		causes(1, w, w.plain("api_key another")), // a new key is asked with at once
		accepted(w.plain("api_key_file " + key)), // which has the same key
		accepted(w.plain("budget 100000")),
		accepted(w.plain("budget 100000 20%")),
		causes(3, w, webrisk.plain()),                // another protocol has other lists, and this one a request for each
		accepted(webrisk.plain("token_file " + key)), // a token is no other asker
	}
	for _, more := range moreVariants {
		all = append(all, more(w)...)
	}
	return all
}

// moreVariants are variants of protocols in files of their own.
var moreVariants []func(w *world) []reloadVariant

// overTLS has the server listen by TLS too, at an endpoint that replaces the other one.
func (w *world) overTLS() {
	server := httptest.NewTLSServer(w.google)
	w.t.Cleanup(server.Close)
	w.endpoint, w.certificate = server.URL, server.Certificate()
}

// authority writes the certificate of the server into a file, which it returns.
func (w *world) authority(t *testing.T, dir string) string {
	return writeFile(t, dir, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.certificate.Raw})))
}

// TestReloads has to change each setting of an engine. This fails when there is a new one.
func TestTheCycleOfReloadsChangesEachSetting(t *testing.T) {
	w, other, secure := newWorld(t), newWorld(t), newWorld(t)
	secure.overTLS()
	variants := w.reloadVariants(t, other, secure)
	first := settingsOf(t, variants[0].corefile)
	changed := make(map[string]bool)
	for _, v := range variants {
		if v.refused {
			continue
		}
		got := settingsOf(t, v.corefile)
		for i := range got.NumField() {
			if !got.Field(i).Equal(first.Field(i)) {
				changed[got.Type().Field(i).Name] = true
			}
		}
	}
	for i := range first.NumField() {
		if name := first.Type().Field(i).Name; !changed[name] {
			t.Errorf("Expected a reload that changes %s of engine.Settings: add one to reloadVariants", name)
		}
	}
}

// settingsOf returns the engine.Settings that the stanza in a Corefile gives.
func settingsOf(t *testing.T, corefile string) reflect.Value {
	t.Helper()
	_, rest, _ := strings.Cut(corefile, "\tsafebrowsing {\n")
	properties, _, ok := strings.Cut(rest, "\n\t}\n")
	if !ok {
		t.Fatalf("Expected a stanza in\n%s", corefile)
	}
	c := caddy.NewTestController("dns", "safebrowsing {\n"+properties+"\n}")
	c.ServerBlockKeys = []string{"."}
	cfg, err := config.Parse(c, "")
	if err != nil {
		t.Fatal(err)
	}
	return reflect.ValueOf(engine.Settings(cfg.Engine))
}
