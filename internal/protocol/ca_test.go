package protocol

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

func pemOf(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// authority returns the certificate of an authority that has signed nothing.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf(der)
}

func TestOnlyTheGivenAuthoritiesVouchForTheServer(t *testing.T) {
	judge := protocoltest.New(t)
	server := httptest.NewUnstartedServer(judge)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	its, other := pemOf(server.Certificate().Raw), authority(t)
	for _, tc := range []struct {
		name, ca string
		trusted  bool
	}{
		{"its own", its, true},
		{"its own after another", other + its, true},
		{"another", other, false},
		{"the system's", "", false},
	} {
		c, err := NewV5(Config{Endpoint: server.URL, UserAgent: "test/1", CA: tc.ca})
		if err != nil {
			t.Fatal(err)
		}
		c.cfg.Transport.(*http.Transport).Proxy = nil
		judge.ClientStarted()
		err = searchError(t.Context(), c)
		if (err == nil) != tc.trusted || err != nil && !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", tc.name, err)
		}
		c.Close()
	}
	roots, err := ParseCA(its)
	only := x509.NewCertPool()
	only.AddCert(server.Certificate())
	if err != nil || !roots.Equal(only) {
		t.Errorf("authorities besides the given ones, or %v", err)
	}
	if _, err := NewV5(Config{UserAgent: "test/1", CA: "none"}); err == nil {
		t.Error("a text without a certificate is accepted")
	}
}
