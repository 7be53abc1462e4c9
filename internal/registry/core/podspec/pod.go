// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePodCreate checks a pod that is to be created.
func ValidatePodCreate(pod *v1.Pod) field.ErrorList {
	errs := checkPod(pod)
	path := field.NewPath("spec")
	if len(pod.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return append(errs, profilesMatch(pod.Annotations, &pod.Spec, path)...)
}

// checkPod checks what holds for a pod at any time.
func checkPod(pod *v1.Pod) field.ErrorList {
	metaPath, specPath := field.NewPath("metadata"), field.NewPath("spec")
	errs := checkMeta(&pod.ObjectMeta, metaPath)
	errs = append(errs, checkAnnotations(pod.Annotations, &pod.Spec, metaPath.Child("annotations"))...)
	errs = append(errs, checkSpec(&pod.Spec, &pod.ObjectMeta, specPath)...)
	return append(errs, check(func(c *checker) { c.onlyOfPods(&pod.Spec, specPath) })...)
}

// onlyOfPods are rules that templates, for history's sake, need not keep.
func (c *checker) onlyOfPods(spec *v1.PodSpec, path *field.Path) {
	if spec.ServiceAccountName == "" {
		c.noTokens(spec.Volumes, path.Child("volumes"))
	}
	if grace := spec.TerminationGracePeriodSeconds; grace != nil {
		c.nonNegative(path.Child("terminationGracePeriodSeconds"), *grace)
	}
	for i := range spec.Containers {
		c.trimmedImage(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.InitContainers {
		c.trimmedImage(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
}

// noTokens: without a service account there is nobody to have a token of.
func (c *checker) noTokens(volumes []v1.Volume, path *field.Path) {
	for i, volume := range volumes {
		if volume.Projected == nil {
			continue
		}
		for j, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				c.forbidden(path.Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"),
					"must not be specified when serviceAccountName is not set")
			}
		}
	}
}

func checkMeta(meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(meta, true, apivalidation.NameIsDNSSubdomain, path)
	return append(errs, checkFinalizers(meta.Finalizers, path.Child("finalizers"))...)
}

func checkMetaUpdate(meta, old *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(meta, old, path)
	return append(errs, checkFinalizers(meta.Finalizers, path.Child("finalizers"))...)
}

// ValidatePodTemplateSpec checks a template at path, as it is created and after
// an update.
func ValidatePodTemplateSpec(template *v1.PodTemplateSpec, path *field.Path) field.ErrorList {
	specPath := path.Child("spec")
	errs := ValidatePodTemplateMeta(template, path)
	errs = append(errs, checkSpec(&template.Spec, nil, specPath)...)
	errs = append(errs, profilesMatch(template.Annotations, &template.Spec, specPath)...)
	if len(template.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(specPath.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

// ValidatePodTemplateMeta checks the labels and annotations of a template.
func ValidatePodTemplateMeta(template *v1.PodTemplateSpec, path *field.Path) field.ErrorList {
	annotations := path.Child("annotations")
	errs := metavalidation.ValidateLabels(template.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(template.Annotations, annotations)...)
	return append(errs, checkAnnotations(template.Annotations, &template.Spec, annotations)...)
}

// ValidatePodTemplate checks the object of kind PodTemplate.
func ValidatePodTemplate(template *v1.PodTemplate) field.ErrorList {
	errs := checkMeta(&template.ObjectMeta, field.NewPath("metadata"))
	return append(errs, ValidatePodTemplateSpec(&template.Template, field.NewPath("template"))...)
}

// ValidatePodTemplateUpdate checks the object of kind PodTemplate; all of the
// template may change.
func ValidatePodTemplateUpdate(template, old *v1.PodTemplate) field.ErrorList {
	errs := checkMetaUpdate(&template.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
	return append(errs, ValidatePodTemplateSpec(&template.Template, field.NewPath("template"))...)
}

// ValidatePodBinding checks the assignment of a pod to a node.
func ValidatePodBinding(binding *v1.Binding) field.ErrorList {
	return check(func(c *checker) {
		path, target := field.NewPath("target"), binding.Target
		isNode := target.Kind == "" || target.Kind == "Node"
		if !isNode {
			c.add(field.NotSupported(path.Child("kind"), target.Kind, []string{"Node", "<empty>"}))
		}
		if c.need(path, "name", target.Name) && isNode {
			c.dnsSubdomain(path.Child("name"), target.Name)
		}
	})
}
