package protocol

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// ParseCA returns the certificates of a PEM text, nil for "". It is an error if there is
// none.
func ParseCA(text string) (*x509.CertPool, error) {
	if text == "" {
		return nil, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New("there is no certificate in PEM, such as -----BEGIN CERTIFICATE-----")
	}
	return roots, nil
}

// CertFiles are the files, in PEM, of a certificate and its key. The zero CertFiles is none.
type CertFiles struct{ Cert, Key string }

// Load reads the files. The error names them.
func (f CertFiles) Load() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", f.Cert, f.Key, err)
	}
	return &pair, nil
}

// TLS returns how a client speaks TLS: ca as in Config.CA, cert read again for each
// connection, since certificates are renewed. It is an error if one of the files cannot be
// used now; if that happens later, the connection fails.
func TLS(ca string, cert CertFiles) (*tls.Config, error) {
	roots, err := ParseCA(ca)
	if err != nil || cert == (CertFiles{}) {
		return &tls.Config{RootCAs: roots}, err
	}
	if _, err := cert.Load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		RootCAs:              roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert.Load() },
	}, nil
}
