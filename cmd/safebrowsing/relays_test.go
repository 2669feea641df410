package main

import (
	"encoding/pem"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

func TestDoctorTrustsTheAuthorityOfTheCorefile(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewTLSServer(w.Server)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	stanza := ". {\n safebrowsing {\n  endpoint " + server.URL + "\n  db DB\n"
	_, found, _ := examine(t, w.corefile(t, stanza+"  tls "+ca+"\n }\n}\n"))
	if found["tls"].Status != isOK || found["server"].Status != isOK {
		t.Errorf("%+v", found)
	}
}

func TestTheFolderOfSeveralEndpointsIsThatOfTheirSet(t *testing.T) {
	w := newWorld(t)
	one := w.endpoint
	w.endpoint = "http://127.0.0.1:1 " + one + "/" // the first one is down
	if status, out, errOut := w.update(t); status != 0 {
		t.Fatalf("status %d, %s%s", status, out, errOut)
	}
	w.ClientStarted()
	both := "'http://127.0.0.1:1 " + one + "'"
	if a, b, _ := strings.Cut(strings.Trim(both, "'"), " "); a > b {
		both = "'" + b + " " + a + "'"
	}
	status, _, errOut := invoke(t, "update", "-now", "-db", w.dir, "-endpoint", one)
	if status != 2 || !strings.Contains(errOut, "use -endpoint "+both) {
		t.Errorf("status %d, %s", status, errOut)
	}
	if status, _, errOut := invoke(t, "update", "-now", "-db", w.dir, "-protocol", "webrisk", "-endpoint", w.endpoint); status != 2 || !strings.Contains(errOut, "protocol webrisk asks one server") {
		t.Errorf("status %d, %s", status, errOut)
	}
}
