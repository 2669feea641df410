package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Certificate writes a new certificate for 127.0.0.1 and for names, which is its own CA, and its key
// into files of a folder, in PEM. It replaces the files of an earlier call.
func Certificate(t testing.TB, dir string, names ...string) (cert, key string) {
	t.Helper()
	return CertificateAt(t, dir, net.IPv4(127, 0, 0, 1), names...)
}

// CertificateAt is Certificate for another address than 127.0.0.1.
func CertificateAt(t testing.TB, dir string, address net.IP, names ...string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, // kdig takes none without a subject
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{address}, DNSNames: names, IsCA: true, BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	Must(t, err)
	write := func(name, kind string, der []byte) string {
		return Write(t, dir, name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return write("cert.pem", "CERTIFICATE", signed), write("key.pem", "PRIVATE KEY", raw)
}
