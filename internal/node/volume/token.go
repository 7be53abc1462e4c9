// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// maxTokenAge is the age at which every token is replaced. tokenRetry is the pause after a
	// failed replacement.
	maxTokenAge = 24 * time.Hour
	tokenRetry  = 10 * time.Second
)

// token is a service account token bound to the pod.
type token struct {
	value   string
	expires time.Time
	refresh time.Time
}

// tokenKey identifies a token of a pod.
type tokenKey struct {
	audience   string
	expiration int64
}

func (m *Manager) tokenFile(ctx context.Context, pod *v1.Pod, source *v1.ServiceAccountTokenProjection, mode *int32) (payload, time.Time, error) {
	t, err := m.token(ctx, pod, source)
	if err != nil {
		return nil, time.Time{}, err
	}
	return credential(pod, source.Path, []byte(t.value), mode), t.refresh, nil
}

// token returns the pod's token for the audience. It requests a new one after 80 % of the lifetime of the
// old one, or after a day. If that fails, the old one is used until it expires.
func (m *Manager) token(ctx context.Context, pod *v1.Pod, source *v1.ServiceAccountTokenProjection) (token, error) {
	key := tokenKey{audience: source.Audience, expiration: ptr.Deref(source.ExpirationSeconds, 0)}
	state := m.state(pod.UID)
	now := m.options.Clock.Now()
	old, ok := state.tokens[key]
	if ok && now.Before(old.refresh) {
		return old, nil
	}
	fresh, err := m.requestToken(ctx, pod, source)
	switch {
	case err == nil:
		state.tokens[key] = fresh
		return fresh, nil
	case !ok:
		return token{}, fmt.Errorf("failed to fetch token: %w", err)
	case now.After(old.expires):
		return token{}, fmt.Errorf("token expired and refresh failed: %w", err)
	}
	klog.FromContext(ctx).Error(err, "Cannot replace the service account token, will retry", "pod", klog.KObj(pod))
	old.refresh = now.Add(tokenRetry)
	return old, nil
}

func (m *Manager) requestToken(ctx context.Context, pod *v1.Pod, source *v1.ServiceAccountTokenProjection) (token, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	accounts := m.options.Client.CoreV1().ServiceAccounts(pod.Namespace)
	issued, err := accounts.CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return token{}, err
	}
	expires := issued.Status.ExpirationTimestamp.Time
	life := time.Duration(ptr.Deref(issued.Spec.ExpirationSeconds, 0)) * time.Second
	if life <= 0 {
		life = expires.Sub(m.options.Clock.Now())
	}
	begin := expires.Add(-life)
	return token{
		value:   issued.Status.Token,
		expires: expires,
		refresh: earliest(begin.Add(maxTokenAge), expires.Add(-life/5)),
	}, nil
}
