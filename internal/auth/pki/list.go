// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
)

// Stored is a certificate in a directory.
type Stored struct {
	// Name is the name of its file without the extension.
	Name string `json:"name"`
	// Subject and Issuer are common names.
	Subject string    `json:"subject"`
	Issuer  string    `json:"issuer"`
	Expires time.Time `json:"expires"`
	// Authority is set if it signs others.
	Authority bool `json:"authority,omitempty"`
}

// List returns the certificates in a directory, authorities first. Certificates of nodes of clusters elsewhere are files with the
// certificate and the key (.pem), of which links name the current ones.
func List(dir string) ([]Stored, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.crt"))
	if err != nil {
		return nil, err
	}
	current, err := filepath.Glob(filepath.Join(dir, "*-current.pem"))
	if err != nil {
		return nil, err
	}
	var all []Stored
	for _, file := range append(files, current...) {
		certificates, err := cert.CertsFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		c := certificates[0]
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		all = append(all, Stored{Name: name, Subject: c.Subject.CommonName, Issuer: c.Issuer.CommonName, Expires: c.NotAfter, Authority: c.IsCA})
	}
	slices.SortFunc(all, func(a, b Stored) int {
		if a.Authority != b.Authority {
			if a.Authority {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all, nil
}

// Discard removes the certificates in a directory that its authorities have issued, with their keys, and returns their names. Their
// users obtain new ones: see PKI.Renew.
func Discard(dir string) ([]string, error) {
	all, err := List(dir)
	if err != nil {
		return nil, err
	}
	var discarded []string
	for _, c := range all {
		file := filepath.Join(dir, c.Name)
		if _, err := os.Stat(file + ".key"); c.Authority || err != nil {
			continue
		}
		if err := errors.Join(os.Remove(file+".crt"), os.Remove(file+".key")); err != nil {
			return discarded, err
		}
		discarded = append(discarded, c.Name)
	}
	return discarded, nil
}
