// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// Warnings returns warnings about valid fields of a pod that are probably mistakes.
func Warnings(pod *v1.Pod) []string {
	w := warner{spec: &pod.Spec, annotations: pod.Annotations}
	w.all(nil)
	return w.warnings
}

// TemplateWarnings is Warnings for the template at path.
func TemplateWarnings(template *v1.PodTemplateSpec, path *field.Path) []string {
	w := warner{spec: &template.Spec, annotations: template.Annotations, isTemplate: true}
	w.all(path)
	return w.warnings
}

type warner struct {
	spec        *v1.PodSpec
	annotations map[string]string
	isTemplate  bool
	warnings    []string
}

func (w *warner) warn(path *field.Path, format string, args ...any) {
	w.warnings = append(w.warnings, fmt.Sprintf("%s: %s", path, fmt.Sprintf(format, args...)))
}

func (w *warner) all(path *field.Path) {
	spec, specPath := w.spec, path.Child("spec")
	annotations := path.Child("metadata", "annotations")
	w.nodeLabels(specPath)
	w.spread(specPath.Child("topologySpreadConstraints"))
	for _, key := range slices.Sorted(maps.Keys(w.annotations)) {
		if message, found := deprecatedAnnotations[key]; found {
			w.warn(annotations.Key(key), "%s", message)
		}
	}
	for i := range spec.Volumes {
		w.volume(&spec.Volumes[i], specPath.Child("volumes").Index(i))
	}
	w.overlappingFiles()
	w.duplicates(specPath)
	w.fractions(spec.Overhead, specPath.Child("overhead"))
	if spec.SecurityContext == nil || spec.SecurityContext.SeccompProfile == nil {
		w.oldSeccomp(v1.SeccompPodAnnotationKey, annotations)
	}
	for at, container := range allContainers(spec, specPath) {
		w.container(container, at, annotations)
	}
	w.ports(specPath)
	if isNegative(spec.TerminationGracePeriodSeconds) {
		w.warn(specPath.Child("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	w.selectors(specPath.Child("affinity"))
	w.addresses(specPath)
}

const olderSysctls = `non-functional in v1.11+; use the "sysctls" field instead`

var deprecatedAnnotations = map[string]string{
	"scheduler.alpha.kubernetes.io/critical-pod":  `non-functional in v1.16+; use the "priorityClassName" field instead`,
	"security.alpha.kubernetes.io/sysctls":        olderSysctls,
	"security.alpha.kubernetes.io/unsafe-sysctls": olderSysctls,
}

var deprecatedNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// NodeLabelWarning returns the replacement of a deprecated node label; empty for other labels.
func NodeLabelWarning(key string) string { return deprecatedNodeLabels[key] }

func (w *warner) nodeLabels(path *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(w.spec.NodeSelector)) {
		if message, found := deprecatedNodeLabels[key]; found {
			w.warn(path.Child("nodeSelector").Key(key), "%s", message)
		}
	}
	affinity := nodeAffinityOf(w.spec)
	if affinity == nil {
		return
	}
	path = path.Child("affinity", "nodeAffinity")
	for i, term := range requiredTermsOf(affinity) {
		w.nodeTerm(term, false, path.Child(requiredTerms, "nodeSelectorTerms").Index(i))
	}
	for i, term := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		w.nodeTerm(term.Preference, true, path.Child(preferredTerms).Index(i).Child("preference"))
	}
}

func (w *warner) nodeTerm(term v1.NodeSelectorTerm, checkValues bool, path *field.Path) {
	for i, requirement := range term.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		w.nodeLabel(requirement.Key, at.Child("key"))
		if !checkValues {
			continue
		}
		for j, value := range requirement.Values {
			for _, problem := range validation.IsValidLabelValue(value) {
				w.warn(at.Child("values").Index(j), "%s is invalid, %s", value, problem)
			}
		}
	}
}

func (w *warner) nodeLabel(key string, path *field.Path) {
	if message, found := deprecatedNodeLabels[key]; found {
		w.warn(path, "%s is %s", key, message)
	}
}

func (w *warner) spread(path *field.Path) {
	for i, constraint := range w.spec.TopologySpreadConstraints {
		w.nodeLabel(constraint.TopologyKey, path.Index(i).Child("topologyKey"))
		w.nullSelector(constraint.LabelSelector, path.Index(i).Child("labelSelector"))
	}
}

// selectors warns about terms with a nil selector, which matches no pod; an empty one matches all.
func (w *warner) selectors(path *field.Path) {
	if w.spec.Affinity == nil {
		return
	}
	if pods := w.spec.Affinity.PodAffinity; pods != nil {
		w.podTerms(pods.RequiredDuringSchedulingIgnoredDuringExecution, pods.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
	}
	if pods := w.spec.Affinity.PodAntiAffinity; pods != nil {
		w.podTerms(pods.RequiredDuringSchedulingIgnoredDuringExecution, pods.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
	}
}

func (w *warner) podTerms(required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm, path *field.Path) {
	for i, term := range required {
		w.nullSelector(term.LabelSelector, path.Child(requiredTerms).Index(i).Child("labelSelector"))
	}
	for i, term := range preferred {
		w.nullSelector(term.PodAffinityTerm.LabelSelector, path.Child(preferredTerms).Index(i).Child("podAffinityTerm", "labelSelector"))
	}
}

func (w *warner) nullSelector(selector *metav1.LabelSelector, path *field.Path) {
	if selector == nil {
		w.warn(path, "a null labelSelector results in matching no pod")
	}
}

func (w *warner) volume(volume *v1.Volume, path *field.Path) {
	for _, t := range []struct {
		name, message string
		set           bool
	}{
		{"photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+", volume.PhotonPersistentDisk != nil},
		{"gitRepo", "deprecated in v1.11, and disabled by default in v1.33+", volume.GitRepo != nil},
		{"scaleIO", "deprecated in v1.16, non-functional in v1.22+", volume.ScaleIO != nil},
		{"flocker", "deprecated in v1.22, non-functional in v1.25+", volume.Flocker != nil},
		{"storageOS", "deprecated in v1.22, non-functional in v1.25+", volume.StorageOS != nil},
		{"quobyte", "deprecated in v1.22, non-functional in v1.25+", volume.Quobyte != nil},
		{"glusterfs", "deprecated in v1.25, non-functional in v1.26+", volume.Glusterfs != nil},
		{"cephfs", "deprecated in v1.28, non-functional in v1.31+", volume.CephFS != nil},
		{"rbd", "deprecated in v1.28, non-functional in v1.31+", volume.RBD != nil},
	} {
		if t.set {
			w.warn(path.Child(t.name), "%s", t.message)
		}
	}
	if volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil {
		resources, at := volume.Ephemeral.VolumeClaimTemplate.Spec.Resources, path.Child("ephemeral", "volumeClaimTemplate", "spec", "resources")
		w.fraction(resources.Requests, v1.ResourceStorage, at.Child("requests"))
		w.fraction(resources.Limits, v1.ResourceStorage, at.Child("limits"))
	}
}

// duplicates warns about entries with the same key, of which one hides the other.
func (w *warner) duplicates(path *field.Path) {
	ips, secrets := map[string]bool{}, map[string]bool{}
	for i, alias := range w.spec.HostAliases {
		if ips[alias.IP] {
			w.warn(path.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", alias.IP)
		}
		ips[alias.IP] = true
	}
	for i, secret := range w.spec.ImagePullSecrets {
		at := path.Child("imagePullSecrets").Index(i).Child("name")
		if secrets[secret.Name] {
			w.warn(at, "duplicate name %q", secret.Name)
		}
		if secret.Name == "" {
			w.warn(at, "invalid empty name %q", secret.Name)
		}
		secrets[secret.Name] = true
	}
}

func (w *warner) oldSeccomp(key string, path *field.Path) {
	if _, found := w.annotations[key]; found {
		w.warn(path.Key(key), `non-functional in v1.27+; use the "seccompProfile" field instead`)
	}
}

func (w *warner) container(container *v1.Container, path, annotations *field.Path) {
	security := container.SecurityContext
	if security == nil || security.SeccompProfile == nil {
		w.oldSeccomp(v1.SeccompContainerAnnotationKeyPrefix+container.Name, annotations)
	}
	if w.isTemplate && (security == nil || security.AppArmorProfile == nil) {
		w.oldAppArmor(v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container.Name, annotations)
	}
	w.fractions(container.Resources.Limits, path.Child("resources", "limits"))
	w.fractions(container.Resources.Requests, path.Child("resources", "requests"))
	w.env(container.Env, path.Child("env"))
}

// oldAppArmor warns about the annotation, unless it repeats the pod's field.
func (w *warner) oldAppArmor(key string, path *field.Path) {
	value, found := w.annotations[key]
	if !found {
		return
	}
	security := w.spec.SecurityContext
	if security != nil && security.AppArmorProfile != nil && equality.Semantic.DeepEqual(security.AppArmorProfile, annotatedAppArmor(value)) {
		return
	}
	w.warn(path.Key(key), olderAppArmor)
}

func (w *warner) fractions(list v1.ResourceList, path *field.Path) {
	w.fraction(list, v1.ResourceMemory, path)
	w.fraction(list, v1.ResourceEphemeralStorage, path)
}

func (w *warner) fraction(list v1.ResourceList, name v1.ResourceName, path *field.Path) {
	quantity, found := list[name]
	if found && !isWhole(quantity) {
		w.warn(path.Key(string(name)), "fractional byte value %q is invalid, must be an integer", quantity.String())
	}
}

func isWhole(quantity resource.Quantity) bool { return quantity.MilliValue()%1000 == 0 }

// env warns about a variable that hides an earlier one instead of extending it, as
// PATH=$(PATH):/opt/bin does.
func (w *warner) env(vars []v1.EnvVar, path *field.Path) {
	seen := map[string]bool{}
	for i, env := range vars {
		reference := "$(" + env.Name + ")"
		extends := env.ValueFrom == nil && env.Value != reference && strings.Contains(env.Value, reference)
		if seen[env.Name] && !extends {
			w.warn(path.Index(i), "hides previous definition of %q, which may be dropped when using apply", env.Name)
		}
		seen[env.Name] = true
	}
}

// ports warns about ports that two containers share, and about names that only the first port gets.
func (w *warner) ports(path *field.Path) {
	type entry struct {
		path *field.Path
		port v1.ContainerPort
	}
	numbers, names := map[string][]entry{}, map[string]*field.Path{}
	var duplicateNames []string
	for at, container := range allContainers(w.spec, path) {
		for i, port := range container.Ports {
			own := at.Child("ports").Index(i)
			if port.HostIP != "" && port.HostPort == 0 {
				w.warn(own, "hostIP set without hostPort: %+v", port)
			}
			key := fmt.Sprintf("%d/%s", port.ContainerPort, port.Protocol)
			for _, other := range numbers[key] {
				if conflict := portConflict(port, other.port); conflict != "" {
					w.warn(own, "%s port definition with %s", conflict, other.path)
				}
			}
			numbers[key] = append(numbers[key], entry{own, port})
			switch first := names[port.Name]; {
			case port.Name == "":
			case first == nil:
				names[port.Name] = own
			default:
				duplicateNames = append(duplicateNames, fmt.Sprintf(
					"%s: duplicate port name %q with %s, services and probes that select ports by name will use %s", own, port.Name, first, first))
			}
		}
	}
	w.warnings = append(w.warnings, duplicateNames...)
}

func portConflict(a, b v1.ContainerPort) string {
	switch {
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	case a.HostPort == b.HostPort && (a.HostIP == "") != (b.HostIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}

func (w *warner) addresses(path *field.Path) {
	if w.spec.DNSConfig != nil {
		for i, server := range w.spec.DNSConfig.Nameservers {
			w.address(server, path.Child("dnsConfig", "nameservers").Index(i))
		}
	}
	for i, alias := range w.spec.HostAliases {
		w.address(alias.IP, path.Child("hostAliases").Index(i).Child("ip"))
	}
}

func (w *warner) address(ip string, path *field.Path) {
	if netutils.ParseIPSloppy(ip) != nil {
		w.warnings = append(w.warnings, validation.GetWarningsForIP(path, ip)...)
	}
}
