// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
)

// transfers: a large body passes between the pods of [session.connects] in both directions. Its packets are larger than an interface to
// other machines takes, so that pods must learn the path MTU. Pods have the MTU of their bridge, which is that of the scenario's links.
func (s *session) transfers() {
	s.Helper()
	pods := []string{"on-first", "on-second"}
	sums := map[string]string{}
	for _, pod := range pods {
		if mtu := strings.TrimSpace(s.kubectl("exec", pod, "--", "cat", "/sys/class/net/eth0/mtu")); mtu != "1500" {
			s.Errorf("the MTU of %s is %s, want 1500", pod, mtu)
		}
		sums[pod] = s.kubectl("exec", pod, "--", "sh", "-c", "dd if=/dev/urandom of=/www/body bs=1k count=1024 2>/dev/null; sha256sum < /www/body")
	}
	for i, to := range pods {
		from := pods[len(pods)-1-i]
		body := fmt.Sprintf("http://%s:8080/body", s.pod(from).Status.PodIP)
		if got := s.kubectl("exec", to, "--", "sh", "-c", "timeout 20 wget -q -O - "+body+" | sha256sum"); got != sums[from] {
			s.Errorf("%s gets a body with the sum %q, want %q", to, got, sums[from])
		}
	}
}
