function slurm_job_submit(desc, parts, uid) return slurm.SUCCESS end
