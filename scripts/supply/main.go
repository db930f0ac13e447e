// Command supply writes the list of what is linked into programs (an SBOM) as CycloneDX 1.5 JSON:
// the modules that the Go linker noted in them, with their versions, checksums and licences. The
// same programs give the same bytes.
//
//	go run ./scripts/supply PROGRAM... >gbatch.cdx.json
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "supply: %v\n", err)
		os.Exit(1)
	}
}

// The part of CycloneDX 1.5 that is used (https://cyclonedx.org/docs/1.5/json).
type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Licenses   []choice   `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type choice struct {
	License license `json:"license"`
}

type license struct {
	ID string `json:"id"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

func run(w io.Writer, programs []string) error {
	if len(programs) == 0 {
		return fmt.Errorf("name the programs")
	}
	const whole = "gbatch"
	modules := map[string]component{}
	out := &bom{Format: "CycloneDX", Spec: "1.5", Version: 1}
	out.Metadata.Component = component{Type: "application", Ref: whole, Name: whole, Licenses: licensed("Apache-2.0")}
	all := dependency{Ref: whole, DependsOn: []string{}}
	var links []dependency
	slices.Sort(programs)
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		name := "program:" + filepath.Base(path)
		out.Components = append(out.Components, component{Type: "application", Ref: name, Name: filepath.Base(path)})
		all.DependsOn = append(all.DependsOn, name)
		link := dependency{Ref: name}
		std := "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")
		modules[std] = component{Type: "library", Ref: std, Name: "std", Version: info.GoVersion, PURL: std,
			Licenses: licensed("BSD-3-Clause")}
		link.DependsOn = append(link.DependsOn, std)
		for _, m := range info.Deps {
			c, err := describe(m)
			if err != nil {
				return err
			}
			modules[c.Ref] = c
			link.DependsOn = append(link.DependsOn, c.Ref)
		}
		links = append(links, link)
	}
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		out.Components = append(out.Components, modules[ref])
	}
	out.Dependencies = append([]dependency{all}, links...)
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	return enc.Encode(out)
}

func licensed(id string) []choice { return []choice{{license{id}}} }

// describe gives a module's component. One that a directory of this repository stands in for is gbatch's own.
func describe(m *debug.Module) (component, error) {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
	if r := m.Replace; r != nil {
		c.Ref, c.PURL, c.Version, c.Licenses = "gbatch:"+r.Path, "", "", licensed("Apache-2.0")
		c.Properties = []property{{"gbatch:stands-in-for", m.Path + "@" + m.Version}}
		return c, nil
	}
	c.Properties = []property{{"go:h1", m.Sum}} // a hash of the module's files, as in go.sum
	id, err := licenceOf(m.Path, m.Version)
	c.Licenses = licensed(id)
	return c, err
}

// licenceOf gives the SPDX name of a module's licence, from its text in the module cache.
func licenceOf(path, version string) (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", path+"@"+version).Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s@%s: %w", path, version, err)
	}
	var at struct{ Dir string }
	if err := json.Unmarshal(out, &at); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(at.Dir, "LICEN[CS]E*"))
	if err != nil {
		return "", err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		if id := spdx(string(text)); id != "" {
			return id, nil
		}
	}
	return "", fmt.Errorf("%s@%s: its licence is not one that is known here (%d files)", path, version, len(files))
}

// spdx recognizes a licence by words that only it has.
func spdx(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case has("Mozilla Public License") && has("2.0"):
		return "MPL-2.0"
	case has("Apache License") && has("Version 2.0"):
		return "Apache-2.0"
	case has("Permission is hereby granted, free of charge"):
		return "MIT"
	case has("Redistribution and use in source and binary forms") && (has("Neither the name") || has("nor the names of")):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	}
	return ""
}
