// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// file is a path in a volume and its source.
type file struct {
	path, source string
}

func (f file) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// overlaps reports whether the files are equal or one is below the other.
func (f file) overlaps(other file) bool {
	if f.path == "" || other.path == "" {
		return false
	}
	a, b := f.path+"/", other.path+"/"
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

// overlappingFiles warns about volumes in which one file hides another or takes the place of a
// directory.
func (w *warner) overlappingFiles() {
	for i := range w.spec.Volumes {
		volume := &w.spec.Volumes[i]
		if source := volume.ConfigMap; source != nil {
			w.overlaps(volume, fmt.Sprintf("ConfigMap %q", source.Name), itemFiles(source.Items, ""))
		}
		if source := volume.Secret; source != nil {
			w.overlaps(volume, fmt.Sprintf("Secret %q", source.SecretName), itemFiles(source.Items, ""))
		}
		if source := volume.DownwardAPI; source != nil {
			w.overlaps(volume, "DownwardAPI", downwardFiles(source.Items, ""))
		}
		if volume.Projected == nil {
			continue
		}
		var files []file
		for _, source := range volume.Projected.Sources {
			if source == (v1.VolumeProjection{}) {
				w.warnings = append(w.warnings, fmt.Sprintf("volume %q (Projected) has no sources provided", volume.Name))
			}
			files = append(files, projectedFiles(source)...)
		}
		w.overlaps(volume, "Projected", files)
	}
}

func (w *warner) overlaps(volume *v1.Volume, source string, files []file) {
	for i := range files {
		files[i].path = strings.TrimRight(files[i].path, "/")
		for _, earlier := range files[:i] {
			if files[i].overlaps(earlier) {
				w.warnings = append(w.warnings, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", volume.Name, source, files[i], earlier))
			}
		}
	}
}

func itemFiles(items []v1.KeyToPath, source string) []file {
	var files []file
	for _, item := range items {
		files = append(files, file{item.Path, source})
	}
	return files
}

func downwardFiles(items []v1.DownwardAPIVolumeFile, source string) []file {
	var files []file
	for _, item := range items {
		files = append(files, file{item.Path, source})
	}
	return files
}

func projectedFiles(source v1.VolumeProjection) []file {
	switch {
	case source.ConfigMap != nil && source.ConfigMap.Items != nil:
		return itemFiles(source.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", source.ConfigMap.Name))
	case source.Secret != nil && source.Secret.Items != nil:
		return itemFiles(source.Secret.Items, fmt.Sprintf("Secret %q", source.Secret.Name))
	case source.DownwardAPI != nil && source.DownwardAPI.Items != nil:
		return downwardFiles(source.DownwardAPI.Items, "DownwardAPI")
	case source.ServiceAccountToken != nil:
		return []file{{source.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case source.ClusterTrustBundle != nil:
		name := source.ClusterTrustBundle.Name
		if name == nil {
			name = source.ClusterTrustBundle.SignerName
		}
		if name == nil {
			name = new("")
		}
		return []file{{source.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", *name)}}
	case source.PodCertificate != nil:
		var files []file
		for _, f := range []file{
			{source.PodCertificate.CertificateChainPath, "PodCertificate chain"},
			{source.PodCertificate.KeyPath, "PodCertificate key"},
			{source.PodCertificate.CredentialBundlePath, "PodCertificate credential bundle"},
		} {
			if f.path != "" {
				files = append(files, f)
			}
		}
		return files
	}
	return nil
}
