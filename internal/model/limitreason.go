package model

import "strings"

// LimitKind is a family of limits on resources; each has a reason for every kind of resource. The order is stored (see
// LimitReason): append only.
type LimitKind uint8

// The families. RunMins limits of a QOS per user or account use the reasons of the plain RunMins limit.
const (
	AssocGrp LimitKind = iota
	AssocGrpMins
	AssocGrpRunMins
	AssocPerJob
	AssocPerNode
	AssocJobMins
	QOSGrp
	QOSGrpMins
	QOSGrpRunMins
	QOSPerJob
	QOSPerNode
	QOSPerUser
	QOSPerAccount
	QOSJobMins
	QOSMin
	numLimitKinds
)

// limitSorts is the number of kinds of resources that reasons distinguish.
const limitSorts = 8

// TRESSort gives the kind of a resource: its column in the table of reasons.
func TRESSort(tres string) int {
	switch {
	case tres == "cpu":
		return 0
	case tres == "mem":
		return 1
	case tres == "node":
		return 2
	case strings.HasPrefix(tres, gresTRES):
		return 3
	case strings.HasPrefix(tres, licenseTRES):
		return 4
	case tres == "billing":
		return 5
	case tres == "energy":
		return 6
	}
	return 7
}

// LimitReason gives Slurm's reason for a job that a limit on a resource holds.
func LimitReason(k LimitKind, tres string) Reason {
	if k >= numLimitKinds {
		return ReasonAccountingPolicy
	}
	return limitReasons + Reason(k)*limitSorts + Reason(TRESSort(tres))
}

// limitReasons is the number of the first reason of the table; all other reasons are below.
const limitReasons Reason = 100

// limitWords are the reasons as Slurm's page of job reason codes spells them, by family: CPU, memory, node, generic
// resource, license, billing, energy, unknown.
var limitWords = [numLimitKinds][limitSorts]string{
	AssocGrp: {"AssocGrpCpuLimit", "AssocGrpMemLimit", "AssocGrpNodeLimit", "AssocGrpGRES", "AssocGrpLicense",
		"AssocGrpBilling", "AssocGrpEnergy", "AssocGrpUnknown"},
	AssocGrpMins: {"AssocGrpCPUMinutesLimit", "AssocGrpMemMinutes", "AssocGrpNodeMinutes", "AssocGrpGRESMinutes",
		"AssocGrpLicenseMinutes", "AssocGrpBillingMinutes",
		"AssocGrpEnergyMinutes", "AssocGrpUnknownMinutes"},
	AssocGrpRunMins: {"AssocGrpCPURunMinutesLimit", "AssocGrpMemRunMinutes", "AssocGrpNodeRunMinutes",
		"AssocGrpGRESRunMinutes", "AssocGrpLicenseRunMinutes",
		"AssocGrpBillingRunMinutes", "AssocGrpEnergyRunMinutes", "AssocGrpUnknownRunMinutes"},
	AssocPerJob: {"AssocMaxCpuPerJobLimit", "AssocMaxMemPerJob", "AssocMaxNodePerJobLimit", "AssocMaxGRESPerJob",
		"AssocMaxLicensePerJob", "AssocMaxBillingPerJob",
		"AssocMaxEnergyPerJob", "AssocMaxUnknownPerJob"},
	AssocPerNode: {"AssocMaxCpuPerNode", "AssocMaxMemPerNode", "AssocMaxUnknownPerNode", "AssocMaxGRESPerNode",
		"AssocMaxUnknownPerNode", "AssocMaxBillingPerNode",
		"AssocMaxEnergyPerNode", "AssocMaxUnknownPerNode"},
	AssocJobMins: {"AssocMaxCpuMinutesPerJobLimit", "AssocMaxMemMinutesPerJob", "AssocMaxNodeMinutesPerJob",
		"AssocMaxGRESMinutesPerJob", "AssocMaxLicenseMinutesPerJob",
		"AssocMaxBillingMinutesPerJob", "AssocMaxEnergyMinutesPerJob", "AssocMaxUnknownMinutesPerJob"},
	QOSGrp: {"QOSGrpCpuLimit", "QOSGrpMemLimit", "QOSGrpNodeLimit", "QOSGrpGRES", "QOSGrpLicense", "QOSGrpBilling",
		"QOSGrpEnergy", "QOSGrpUnknown"},
	QOSGrpMins: {"QOSGrpCPUMinutesLimit", "QOSGrpMemoryMinutes", "QOSGrpNodeMinutes", "QOSGrpGRESMinutes",
		"QOSGrpLicenseMinutes", "QOSGrpBillingMinutes",
		"QOSGrpEnergyMinutes", "QOSGrpUnknownMinutes"},
	QOSGrpRunMins: {"QOSGrpCPURunMinutesLimit", "QOSGrpMemoryRunMinutes", "QOSGrpNodeRunMinutes", "QOSGrpGRESRunMinutes",
		"QOSGrpLicenseRunMinutes",
		"QOSGrpBillingRunMinutes", "QOSGrpEnergyRunMinutes", "QOSGrpUnknownRunMinutes"},
	QOSPerJob: {"QOSMaxCpuPerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxNodePerJobLimit", "QOSMaxGRESPerJob",
		"QOSMaxLicensePerJob", "QOSMaxBillingPerJob",
		"QOSMaxEnergyPerJob", "QOSMaxUnknownPerJob"},
	QOSPerNode: {"QOSMaxCpuPerNode", "QOSMaxMemoryPerNode", "QOSMaxUnknownPerNode", "QOSMaxGRESPerNode",
		"QOSMaxUnknownPerNode", "QOSMaxBillingPerNode",
		"QOSMaxEnergyPerNode", "QOSMaxUnknownPerNode"},
	QOSPerUser: {"QOSMaxCpuPerUserLimit", "QOSMaxMemoryPerUser", "QOSMaxNodePerUserLimit", "QOSMaxGRESPerUser",
		"QOSMaxLicensePerUser", "QOSMaxBillingPerUser",
		"QOSMaxEnergyPerUser", "QOSMaxUnknownPerUser"},
	QOSPerAccount: {"MaxCpuPerAccount", "MaxMemoryPerAccount", "MaxNodePerAccount", "MaxGRESPerAccount",
		"MaxLicensePerAccount", "MaxBillingPerAccount",
		"MaxEnergyPerAccount", "MaxUnknownPerAccount"},
	QOSJobMins: {"QOSMaxCpuMinutesPerJobLimit", "QOSMaxMemoryMinutesPerJob", "QOSMaxNodeMinutesPerJob",
		"QOSMaxGRESMinutesPerJob", "QOSMaxLicenseMinutesPerJob",
		"QOSMaxBillingMinutesPerJob", "QOSMaxEnergyMinutesPerJob", "QOSMaxUnknownMinutesPerJob"},
	QOSMin: {"QOSMinCpuNotSatisfied", "QOSMinMemory", "QOSMinNode", "QOSMinGRES", "QOSMinLicense", "QOSMinBilling",
		"QOSMinEnergy", "QOSMinUnknown"},
}

// limitWord gives the token of a reason of the table, or "".
func (r Reason) limitWord() string {
	if r < limitReasons || r >= limitReasons+Reason(numLimitKinds)*limitSorts {
		return ""
	}
	n := r - limitReasons
	return limitWords[n/limitSorts][n%limitSorts]
}
