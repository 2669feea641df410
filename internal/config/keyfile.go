package config

import (
	"errors"
	"os"
	"strings"
)

// ReadKey reads a file that holds an API key and nothing else.
func ReadKey(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(raw))
	if key == "" {
		return "", errors.New(path + " is empty")
	}
	return key, nil
}
