// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podState is the state of a pod between Prepare and Teardown.
type podState struct {
	mu     sync.Mutex // held during Prepare, refresh and Teardown
	pod    *v1.Pod    // as last prepared; nil until Prepare has succeeded. Changed by setPod only
	tokens map[tokenKey]token
	// certificates are created on first use and renewed in place.
	certificates map[certificateKey]*podCertificate

	claimsMu sync.Mutex // held for a moment, also by those who do not hold mu
	claims   map[string]bound
	prepared bool // pod is not nil
	shown    map[certificateKey]shownCertificate
}

// show sets what metrics tell of a certificate. They do not wait for a Prepare.
func (s *podState) show(key certificateKey, c shownCertificate) {
	s.claimsMu.Lock()
	defer s.claimsMu.Unlock()
	s.shown[key] = c
}

func (s *podState) shownCertificates() []shownCertificate {
	s.claimsMu.Lock()
	defer s.claimsMu.Unlock()
	return slices.Collect(maps.Values(s.shown))
}

// setPod sets the pod as last prepared. The caller holds mu.
func (s *podState) setPod(pod *v1.Pod) {
	s.claimsMu.Lock()
	defer s.claimsMu.Unlock()
	s.pod, s.prepared = pod, pod != nil
}

// isPrepared reports whether the pod's volumes are present.
func (s *podState) isPrepared() bool {
	s.claimsMu.Lock()
	defer s.claimsMu.Unlock()
	return s.prepared
}

// bind records what a volume of the pod is bound to.
func (s *podState) bind(volume string, b bound) {
	s.claimsMu.Lock()
	defer s.claimsMu.Unlock()
	s.claims[volume] = b
}

// boundTo returns what a volume of the pod is bound to.
func (s *podState) boundTo(volume string) (bound, bool) {
	s.claimsMu.Lock()
	defer s.claimsMu.Unlock()
	b, ok := s.claims[volume]
	return b, ok
}

func (s *podState) allBound() []bound {
	s.claimsMu.Lock()
	defer s.claimsMu.Unlock()
	return slices.Collect(maps.Values(s.claims))
}

func (m *Manager) state(uid types.UID) *podState {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.pods[uid]
	if state == nil {
		state = &podState{
			tokens: map[tokenKey]token{}, certificates: map[certificateKey]*podCertificate{}, claims: map[string]bound{}, shown: map[certificateKey]shownCertificate{},
		}
		m.pods[uid] = state
	}
	return state
}

// states returns the states of all pods.
func (m *Manager) states() map[types.UID]*podState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.pods)
}
