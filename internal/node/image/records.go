// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/durable"
)

// records store which credentials pulled an image, so that a pod without these credentials cannot use
// the image only because it is present (KEP-2535). An image without a record was preloaded. The files are those
// of upstream's kubelet, of the same names: a directory of a kubelet can be used as it is, and its tools read ours.
type records struct {
	dir          string
	clock        clock.PassiveClock
	verification Verification

	mu sync.Mutex
	// granted are the files of the images pulled since the last prune began.
	granted map[string]bool
}

// allows reports whether a pod with these credentials may use the present image, and whether that
// depends on the credentials.
func (r *records) allows(image, ref string, credentials []credential) (allowed, needsKeys bool) {
	name, err := nameOnly(image)
	if err != nil {
		return false, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.read(ref)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, false
	}
	if !r.verification.required(name, err == nil || r.pulling(image)) {
		return true, false
	}
	granted, ok := record.CredentialMapping[name]
	if granted.NodePodsAccessible {
		return true, false
	}
	for _, c := range credentials {
		if slices.ContainsFunc(granted.KubernetesSecrets, c.equals) {
			return true, true
		}
	}
	return false, ok
}

// pulling reports whether a pull with a secret has begun and has not ended. After one that was interrupted, it is
// unknown who may use the image.
func (r *records) pulling(image string) bool {
	_, err := os.Stat(r.intentFile(image))
	return !errors.Is(err, fs.ErrNotExist)
}

// begin records the start of a pull. The function it returns records the end, with the runtime's
// reference of the image, or "" if the pull failed.
func (r *records) begin(image string, c *credential) (done func(ref string), err error) {
	intent := r.intentFile(image)
	if c.auth != nil {
		if err := write(intent, &kubeletv1beta1.ImagePullIntent{TypeMeta: typeMeta("ImagePullIntent"), Image: image}); err != nil {
			return nil, err
		}
	}
	return func(ref string) {
		// If the grant cannot be stored, the intent stays, and the next pod must pull with its own
		// credentials.
		if ref != "" && r.grant(image, ref, c) != nil {
			return
		}
		if c.auth != nil {
			_ = os.Remove(intent)
		}
	}, nil
}

// grant adds these credentials to the image's record.
func (r *records) grant(image, ref string, c *credential) error {
	name, err := nameOnly(image)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.read(ref)
	if err != nil {
		record = kubeletv1beta1.ImagePulledRecord{} // none, or not readable
	}
	if record.CredentialMapping == nil {
		record.CredentialMapping = map[string]kubeletv1beta1.ImagePullCredentials{}
	}
	if r.granted == nil {
		r.granted = map[string]bool{}
	}
	r.granted[r.pulledFile(ref)] = true
	granted := record.CredentialMapping[name]
	switch {
	case granted.NodePodsAccessible:
		return nil
	case c.auth == nil:
		granted = kubeletv1beta1.ImagePullCredentials{NodePodsAccessible: true}
	case slices.Contains(granted.KubernetesSecrets, c.source):
		return nil
	default:
		granted.KubernetesSecrets = append(granted.KubernetesSecrets, c.source)
	}
	record.TypeMeta, record.ImageRef, record.LastUpdatedTime = typeMeta("ImagePulledRecord"), ref, metav1.NewTime(r.clock.Now())
	record.CredentialMapping[name] = granted
	return write(r.pulledFile(ref), &record)
}

// prune removes the records of images that list does not return. The caller has removed these images already: with
// the opposite order, an agent that is killed in between would leave an image without a record, which every pod may
// use. For the same reason, the record of an image that is pulled meanwhile stays.
func (r *records) prune(list func() ([]string, error)) error {
	r.mu.Lock()
	r.granted = nil
	r.mu.Unlock()
	refs, err := list()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	keep := map[string]bool{}
	for _, ref := range refs {
		keep[r.pulledFile(ref)] = true
	}
	files, err := filepath.Glob(filepath.Join(r.dir, pulledDir, filePrefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		if keep[file] || r.granted[file] {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *records) read(ref string) (kubeletv1beta1.ImagePulledRecord, error) {
	var record kubeletv1beta1.ImagePulledRecord
	data, err := os.ReadFile(r.pulledFile(ref))
	if err != nil {
		return record, err
	}
	return record, json.Unmarshal(data, &record)
}

// write stores a record. It is durable, because an image without one may be used by all.
func write(path string, record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(path, data, 0o600)
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kubeletv1beta1.SchemeGroupVersion.String(), Kind: kind}
}

// The directories of the two kinds of records, and what their files' names begin with. Other files are not ours.
const (
	pulledDir  = "pulled"
	pullingDir = "pulling"
	filePrefix = "sha256-"
)

func (r *records) pulledFile(ref string) string { return r.file(pulledDir, ref) }

func (r *records) intentFile(image string) string { return r.file(pullingDir, image) }

func (r *records) file(dir, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(r.dir, dir, filePrefix+hex.EncodeToString(sum[:]))
}
