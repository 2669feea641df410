package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The types are the part of SPDX 2.3 that is needed: https://spdx.github.io/spdx-spec/v2.3/.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Version       string         `json:"versionInfo"`
		Location      string         `json:"downloadLocation"`
		FilesAnalyzed bool           `json:"filesAnalyzed"`
		Checksums     []spdxChecksum `json:"checksums,omitempty"`
		References    []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

// bill writes from which modules the programs of a target were built, as the programs
// themselves tell.
func (r *release) bill(t target) error {
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: filepath.Base(r.name(t, "")),
		Namespace: "https://github.com/coredns-safebrowsing/safebrowsing/releases/download/v" + r.version + "/" + filepath.Base(r.name(t, ".spdx.json")),
		Creation:  spdxCreation{r.time.Format(time.RFC3339), []string{"Tool: coredns-safebrowsing/deploy/release"}},
	}
	for _, program := range programs {
		if err := doc.program(r.binary(t, program), r.version); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.name(t, ".spdx.json"), append(text, '\n'), 0o644)
}

// program adds a program, the modules that it has, and Go.
func (d *spdxDocument) program(path, version string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	id := "SPDXRef-" + filepath.Base(path)
	d.Packages = append(d.Packages, spdxPackage{
		ID: id, Name: info.Path, Version: version, Location: "https://github.com/coredns-safebrowsing/safebrowsing",
		Checksums: []spdxChecksum{{"SHA256", fmt.Sprintf("%x", sha256.Sum256(content))}},
	})
	d.Relationships = append(d.Relationships,
		spdxRelationship{d.ID, "DESCRIBES", id},
		spdxRelationship{id, "CONTAINS", d.module("stdlib", strings.TrimPrefix(info.GoVersion, "go"))})
	for _, m := range info.Deps {
		if m.Replace != nil {
			return fmt.Errorf("%s is replaced by %s: a release has published modules only", m.Path, m.Replace.Path)
		}
		d.Relationships = append(d.Relationships, spdxRelationship{id, "CONTAINS", d.module(m.Path, m.Version)})
	}
	return nil
}

// module returns the identifier of a module, which it adds once.
func (d *spdxDocument) module(path, version string) string {
	id := "SPDXRef-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, path+"-"+version)
	if slices.ContainsFunc(d.Packages, func(p spdxPackage) bool { return p.ID == id }) {
		return id
	}
	d.Packages = append(d.Packages, spdxPackage{
		ID: id, Name: path, Version: version, Location: "NOASSERTION",
		References: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
	})
	return id
}
