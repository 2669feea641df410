package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"aead.dev/minisign"
)

// checksums writes SHA256SUMS, which "sha256sum -c" reads, and signs it if there is a key.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	path := filepath.Join(r.out, "SHA256SUMS")
	if err := os.WriteFile(path, sums.Bytes(), 0o644); err != nil {
		return err
	}
	return r.sign(path, sums.Bytes())
}

// sign writes a signature that "minisign -V" verifies. The comment has no time, which would
// differ between two releases of one version.
func (r *release) sign(path string, content []byte) error {
	file := os.Getenv("MINISIGN_KEY_FILE")
	if file == "" {
		fmt.Println("SHA256SUMS is not signed: MINISIGN_KEY_FILE is not set")
		return nil
	}
	key, err := minisign.PrivateKeyFromFile(os.Getenv("MINISIGN_PASSWORD"), file)
	if err != nil {
		return fmt.Errorf("MINISIGN_KEY_FILE: %w", err)
	}
	signature := minisign.SignWithComments(key, content, "coredns-safebrowsing "+r.version, "signature of SHA256SUMS")
	return os.WriteFile(path+".minisig", signature, 0o644)
}
