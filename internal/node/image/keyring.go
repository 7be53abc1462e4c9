// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// keyring has the credentials of a pod's pull secrets.
type keyring struct {
	entries []entry // more specific patterns first
	missing []string
}

// entry is the entry of one registry in a Docker configuration.
type entry struct {
	pattern string // host[:port][/path]; labels of the host may be globs
	credential
}

// credential is one credential of a registry. The zero value is an anonymous pull.
type credential struct {
	auth   *runtimeapi.AuthConfig
	source kubeletv1beta1.ImagePullSecret
}

// equals reports whether a credential that pulled an image was this one: of the same secret, or with the same content.
func (c credential) equals(used kubeletv1beta1.ImagePullSecret) bool {
	if used.CredentialHash == c.source.CredentialHash {
		return true
	}
	used.CredentialHash = c.source.CredentialHash
	return used == c.source
}

// newKeyring reads the pod's pull secrets. It skips missing and malformed ones: the pull may succeed
// without them.
func newKeyring(ctx context.Context, secrets Secrets, pod *v1.Pod) *keyring {
	k := &keyring{}
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		secret, err := secrets.Secret(ctx, pod, ref.Name)
		if err != nil {
			k.missing = append(k.missing, ref.Name)
			continue
		}
		entries, err := parseSecret(secret)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Image pull secret is malformed", "secret", klog.KObj(secret), "pod", klog.KObj(pod))
			continue
		}
		k.entries = append(k.entries, entries...)
	}
	slices.SortStableFunc(k.entries, func(a, b entry) int { return strings.Compare(b.pattern, a.pattern) })
	return k
}

// login is a credential in a Docker configuration.
type login struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"` // base64 of username:password; takes precedence
}

func parseSecret(secret *v1.Secret) ([]entry, error) {
	logins := map[string]login{}
	switch secret.Type {
	case v1.SecretTypeDockerConfigJson:
		file := struct {
			Auths *map[string]login `json:"auths"`
		}{Auths: &logins}
		if err := json.Unmarshal(secret.Data[v1.DockerConfigJsonKey], &file); err != nil {
			return nil, err
		}
	case v1.SecretTypeDockercfg:
		if err := json.Unmarshal(secret.Data[v1.DockerConfigKey], &logins); err != nil {
			return nil, err
		}
	}
	entries := make([]entry, 0, len(logins))
	for registry, l := range logins {
		auth, err := l.config()
		if err != nil {
			return nil, fmt.Errorf("registry %q: %w", registry, err)
		}
		sum := sha256.Sum256([]byte(auth.Username + "\x00" + auth.Password))
		entries = append(entries, entry{pattern: patternOf(registry), credential: credential{
			auth: auth,
			source: kubeletv1beta1.ImagePullSecret{
				UID: string(secret.UID), Namespace: secret.Namespace, Name: secret.Name, CredentialHash: hex.EncodeToString(sum[:]),
			},
		}})
	}
	return entries, nil
}

func (l login) config() (*runtimeapi.AuthConfig, error) {
	if l.Auth == "" {
		return &runtimeapi.AuthConfig{Username: l.Username, Password: l.Password}, nil
	}
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(l.Auth), "="))
	if err != nil {
		return nil, err
	}
	username, password, ok := strings.Cut(string(decoded), ":")
	if !ok {
		return nil, fmt.Errorf("unable to parse auth field, must be formatted as base64(username:password)")
	}
	return &runtimeapi.AuthConfig{Username: username, Password: password}, nil
}

// dockerHub is the key of Docker Hub in Docker configurations.
const dockerHub = "index.docker.io"

// patternOf strips the scheme and the API version from a registry's key.
func patternOf(registry string) string {
	for _, scheme := range []string{"https://", "http://"} {
		registry = strings.TrimPrefix(registry, scheme)
	}
	host, rest, _ := strings.Cut(registry, "/")
	for _, version := range []string{"v1", "v2"} {
		if rest == version || strings.HasPrefix(rest, version+"/") {
			rest = strings.TrimPrefix(rest[len(version):], "/")
			break
		}
	}
	if rest == "" {
		return host
	}
	return host + "/" + rest
}

// lookup returns the credentials for the image, in the order to try them.
func (k *keyring) lookup(image string) []credential {
	repository, err := repository(image)
	if err != nil {
		return nil
	}
	var out []credential
	for _, e := range k.entries {
		if matches(e.pattern, repository) {
			out = append(out, e.credential)
		}
	}
	if len(out) > 0 || !strings.HasPrefix(repository, "docker.io/") {
		return out
	}
	for _, e := range k.entries {
		if e.pattern == dockerHub {
			out = append(out, e.credential)
		}
	}
	return out
}

// matches reports whether a pattern matches a repository: the labels of the host one by one, so that a
// glob never spans a dot, the port exactly, and the pattern's path as a prefix.
func matches(pattern, repository string) bool {
	patternHost, patternPath, _ := strings.Cut(pattern, "/")
	host, rest, _ := strings.Cut(repository, "/")
	patternName, patternPort := splitPort(patternHost)
	name, port := splitPort(host)
	if patternPort != port || !strings.HasPrefix(rest, patternPath) {
		return false
	}
	globs, labels := strings.Split(patternName, "."), strings.Split(name, ".")
	return slices.EqualFunc(globs, labels, func(glob, label string) bool {
		ok, err := path.Match(glob, label)
		return err == nil && ok
	})
}

func splitPort(host string) (name, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return host, ""
	}
	return name, port
}

func hashes(credentials []credential) []string {
	out := make([]string, len(credentials))
	for i, c := range credentials {
		out[i] = c.source.CredentialHash
	}
	return out
}
