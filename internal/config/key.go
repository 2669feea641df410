package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// KeyVariable is the environment variable with the API key.
const KeyVariable = "SAFEBROWSING_API_KEY"

// Credential is the name of the systemd credential with the API key, see LoadCredential= in
// systemd.exec(5). systemd puts it into the directory that $CREDENTIALS_DIRECTORY names.
const Credential = "safebrowsing.key"

// KeyOfProcess returns the API key that the process was started with: the one of the
// credential, else the one of the environment, else "". file holds the credential; it is ""
// if the key comes from elsewhere. A credential that is empty is none, so that a unit
// starts before there is a key (SetCredential= is its default).
func KeyOfProcess() (key, file string, err error) {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		file = filepath.Join(dir, Credential)
		switch raw, err := os.ReadFile(file); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", file, fmt.Errorf("the API key in $CREDENTIALS_DIRECTORY: %w", err)
		default:
			if key := strings.TrimSpace(string(raw)); key != "" {
				return key, file, say.CheckKeyIn("the credential "+Credential, key)
			}
		}
	}
	key = os.Getenv(KeyVariable)
	return key, "", say.CheckKeyIn("$"+KeyVariable, key)
}
